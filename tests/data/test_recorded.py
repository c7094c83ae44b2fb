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
    return source(root, **options).record()


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
    zipped = ZipFolder(tmp_path / "first.zip", 8, labels=True, cache_dir=tmp_path / "cache").record()
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
    assert len(one.classes or ()) == make().num_classes
    assert DataRecord.read(json.loads(json.dumps(one.plain()))) == one == make().record()
    assert len({one.train.fingerprint, one.test.fingerprint}) == 2
    loaded = ImageDataModule(make(), 8, conditional=True)
    loaded.as_recorded(one)
    assert len(loaded.reference("test")) == one.test.images


@pytest.mark.parametrize("entry", [None, [], "x", {"name": "x"}, {"train": 3, "test": {}}])
def test_what_is_no_record_is_none(entry) -> None:
    assert DataRecord.read(entry) is None
    whole = Digits().record().plain()
    for key, wrong in (("shape", ["1"]), ("classes", [1]), ("name", 3), ("train", {"images": "a", "fingerprint": 3})):
        assert DataRecord.read(whole | {key: wrong}) is None
    hostile = DataRecord.read(whole | {"classes": ["\x1b]52;c", "a\nb"]})
    assert hostile.classes == ("\x1b]52;c", "a\nb") and hostile.numbered() == "0 \\x1b]52;c, 1 a\\nb"


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


def test_the_classes_of_a_run_are_those_of_its_record_although_its_images_are_gone_or_have_more(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    then = ImageDataModule(source(root), 4, conditional=True, label_dropout=0.1).describe()
    (root / "0new").mkdir()
    shutil.copy(root / "a" / "00.png", root / "0new")
    for place in (root, tmp_path / "nowhere"):
        data = ImageDataModule(source(place), 4, conditional=True, label_dropout=0.1)
        data.as_recorded(then)
        assert (data.num_classes, data.conditions.num_labels, data.shape) == (2, 3, (3, 8, 8))
        assert data.conditions.class_names == ("a", "b") and data.conditions.of_samples([3])["label"].tolist() == [1]
    data = ImageDataModule(source(root), 4, conditional=True)
    data.as_recorded(then)
    with pytest.raises(ValueError, match=r"^source=set must be .* has changed: .*; classes: 0new added; restore"):
        data.reference("train")


def test_class_folders_that_are_numbers_sort_as_numbers_and_runs_keep_their_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "set"
    for name in ("0", "1", "9", "10"):
        (root / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (8, 8), (int(name), i, 255)).save(root / name / f"{i}.png")
    by_number, by_text = ("0", "1", "9", "10"), ("0", "1", "10", "9")
    caplog.set_level("INFO")
    new = source(root)
    assert new.class_names == list(by_number)
    images = new.train()
    assert all(
        by_number[label] == str(int(pixel))
        for label, pixel in zip(images.labels, images.images[:, 0, 0, 0], strict=True)
    )
    assert [r.message for r in caplog.records if "order of their numbers: 0, 1, 9, 10" in r.message]
    for names in (by_number, by_text):
        old = source(root)
        old.keep_order(names)
        assert tuple(old.class_names) == names
    (root / "10").rename(root / "ten")
    assert source(root).class_names == ["0", "1", "9", "ten"]


def test_every_source_names_its_classes(tmp_path: Path) -> None:
    from diffusion_lab.data import CIFAR10, FashionMNIST

    assert Photos().class_names == ("astronaut", "chelsea", "coffee", "motorcycle_left", "rocket")
    assert Digits().class_names == [str(i) for i in range(10)] and Memory(numbered()).class_names is None
    for named in (CIFAR10(tmp_path), FashionMNIST(tmp_path)):
        assert len(set(named.class_names)) == named.num_classes == 10
