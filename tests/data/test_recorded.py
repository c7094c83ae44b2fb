"""The record of what the data are: it follows the content and what is done with it, and nothing else."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diffusion_lab.data import DataRecord, Digits, GaussianMixture, ImageDataModule, ImageFolder, Photos, ZipFolder
from tests.data.fakes import Memory, numbered


def folder(root: Path, n: int = 12) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 12, 10, 3), np.uint8)
    for i in range(n):
        (root / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i]).save(root / "ab"[i % 2] / f"{i:02}.png")
    return root


def source(root: Path, image_size: int = 8, **options) -> ImageFolder:
    return ImageFolder(root, image_size, cache_dir=root.parent / "cache", class_folders=True, **options)


def record(root: Path, **options) -> DataRecord:
    return DataRecord.of(source(root, **options))


def test_the_record_is_that_of_the_images_wherever_and_however_they_are_kept(tmp_path: Path) -> None:
    root = folder(tmp_path / "first")
    held = record(root)
    moved = record(Path(shutil.copytree(root, tmp_path / "elsewhere" / "first")))
    assert held == record(root, memory_mb=0.0001) == moved
    assert held.train.fingerprint == source(root).train().fingerprint()
    with zipfile.ZipFile(tmp_path / "first.zip", "w") as file:
        for path in sorted(root.rglob("*.png")):
            file.write(path, path.relative_to(root))
        names = [str(path.relative_to(root)) for path in sorted(root.rglob("*.png"))]
        file.writestr("dataset.json", json.dumps({"labels": [[name, "ab".index(name[0])] for name in names]}))
    zipped = DataRecord.of(ZipFolder(tmp_path / "first.zip", 8, labels=True, cache_dir=tmp_path / "cache"))
    assert (zipped.train, zipped.test, zipped.shape) == (held.train, held.test, held.shape)


def test_the_record_follows_the_content_and_its_preparation(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    first = record(root)
    assert first.changes(first, labelled=True) == []
    other = [record(root, **more) for more in ({"image_size": 6}, {"channels": 1}, {"resize": "box_bicubic"})]
    assert len({one.train.fingerprint for one in (first, *other)}) == 4 and all(
        first.changes(one, False) for one in other
    )

    shutil.copy(root / "a" / "00.png", root / "a" / "new.png")
    assert first.changes(record(root), True) == ["10 training and 2 test images -> 11 training and 2 test images"]
    (root / "a" / "new.png").unlink()
    for name in ("00", "01"):  # which are in different splits or not, one of them at least
        path = root / "ab"[int(name) % 2] / f"{name}.png"
        before = path.read_bytes()
        Image.open(path).rotate(180).save(path)
        (phrase,) = first.changes(record(root), True)
        assert phrase.startswith("other ") and " images (" in phrase
        path.write_bytes(before)

    (root / "b").rename(root / "c")
    assert first.changes(record(root), labelled=True) == ["classes: c added, b removed"]
    assert first.changes(record(root), labelled=False) == []
    (root / "c" / "01.png").rename(root / "a" / "99.png")  # the same images in the same order under another label
    assert "other labels of the " in "; ".join(first.changes(record(root), labelled=True))


@pytest.mark.parametrize(
    "make",
    [
        Digits,
        lambda: Photos(8, 20, 10),
        lambda: GaussianMixture([0.0, 1.0], [1.0, 1.0], num_images=32, num_test_images=8),
    ],
)
def test_every_source_has_one_and_it_comes_back_from_json(make) -> None:
    one = ImageDataModule(make(), 8, conditional=True).describe()
    assert one.train.images == make().train_size() and len(one.train.fingerprint) == len(one.test.fingerprint) == 12
    assert one.train.labels and len(one.classes or ()) == make().num_classes
    assert DataRecord.read(json.loads(json.dumps(one.plain()))) == one == DataRecord.of(make())
    assert len({one.train.fingerprint, one.test.fingerprint}) == 2


@pytest.mark.parametrize("entry", [None, [], "x", {"name": "x"}, {"train": 3, "test": {}}])
def test_what_is_no_record_is_none(entry) -> None:
    assert DataRecord.read(entry) is None
    whole = DataRecord.of(Digits()).plain()
    for key, wrong in (("shape", ["1"]), ("classes", [1]), ("name", 3), ("train", {"images": "a", "fingerprint": 3})):
        assert DataRecord.read(whole | {key: wrong}) is None
    assert DataRecord.read(whole | {"classes": ["\x1b]52;c"]}).classes == ("?]52;c",)


def test_a_loaded_run_says_that_its_images_are_not_those_of_its_training() -> None:
    then = ImageDataModule(Memory(numbered(40)), 8).describe()
    same = ImageDataModule(Memory(numbered(40)), 8)
    same.as_recorded(then)
    assert torch.equal(same.reference("train"), numbered(40))
    for n in (39, 41):
        other = ImageDataModule(Memory(numbered(n)), 8)
        other.as_recorded(then)
        with pytest.raises(ValueError, match=rf"^source=memory must be the data .*: 40 -> {n} test images; restore"):
            other.reference("test")
    old = ImageDataModule(Memory(numbered(41)), 8)
    old.as_recorded(None)  # a run of before
    assert len(old.reference("test")) == 41
