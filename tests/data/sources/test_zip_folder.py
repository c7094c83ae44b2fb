"""Zip archives as EDM's dataset_tool writes them."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from diffusion_lab.cli.main import main
from diffusion_lab.data import ZipFolder
from diffusion_lab.data.sources import zip_folder as module

PIXELS = np.random.RandomState(0).randint(0, 256, (20, 8, 8, 3), dtype=np.uint8)
NAMES = [f"{i // 10:05d}/img{i:08d}.png" for i in range(20)]
CLASSES = [i % 3 for i in range(20)]


def png(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def archive(path: Path, labels: object = "all", more: dict[str, bytes] | None = None, **options) -> Path:
    """An archive of 20 images; `labels` is the value in dataset.json, None for no such file."""
    labels = [[name, label] for name, label in zip(NAMES, CLASSES, strict=True)] if labels == "all" else labels
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, pixels in zip(NAMES, PIXELS, strict=True):
            file.writestr(name, png(pixels))
        if labels is not None:
            file.writestr("dataset.json", labels if isinstance(labels, bytes) else json.dumps({"labels": labels}))
        for name, content in (more or {}).items():
            file.writestr(name, content)
    return path


def source(path: Path, image_size: int = 8, **options) -> ZipFolder:
    return ZipFolder(path, image_size, cache_dir=path.parent / "cache", **options)


@pytest.mark.parametrize("memory_mb", [100, 0])
def test_an_archive_gives_its_images_and_classes(tmp_path, memory_mb):
    images = source(archive(tmp_path / "edm.zip"), labels=True, memory_mb=memory_mb)
    images.check()
    assert (images.name, images.num_classes, images.train_size()) == ("edm", 3, 18)
    found = {}
    for split in (images.train(), images.test()):
        assert split.labels is not None
        for image, label in zip(split.take(range(len(split))), split.labels.tolist(), strict=True):
            found[image.permute(1, 2, 0).numpy().tobytes()] = label
    assert found == {pixels.tobytes(): label for pixels, label in zip(PIXELS, CLASSES, strict=True)}


def test_without_labels_dataset_json_is_not_read(tmp_path):
    images = source(archive(tmp_path / "a.zip", labels=b"{"))
    assert images.num_classes is None and images.train().labels is None


def test_a_grey_and_smaller_copy(tmp_path):
    images = source(archive(tmp_path / "a.zip"), image_size=4, channels=1).train()
    assert images.take([0]).shape == (1, 1, 4, 4)


def test_only_visible_images_are_read_and_nothing_is_written(tmp_path):
    odd = {"../../out.png": png(PIXELS[0]), "/abs.png": png(PIXELS[1]), "readme.txt": b"text", "run.py": b"1"}
    odd |= {"__MACOSX/00000/._img.png": b"x", ".hidden/a.png": b"x", "folder/": b""}
    path = archive(tmp_path / "deep" / "in" / "a.zip", more=odd)
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    images = source(path)
    assert images.train_size() == 19  # 22 images, of which 3 are held out
    images.train()
    after = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert {p.relative_to(path.parent).parts[0] for p in after - before} == {"cache"} and not Path("/abs.png").exists()


def test_workers_and_pickles_read_the_same(tmp_path):
    images = source(archive(tmp_path / "a.zip"), memory_mb=0).train()
    wanted = images.take(range(18))
    assert torch.equal(pickle.loads(pickle.dumps(images)).take(range(18)), wanted)

    class Rows:
        def __len__(self):
            return 18

        def __getitem__(self, i):
            return images.take([i])[0]

    rows = list(DataLoader(Rows(), batch_size=3, num_workers=2, multiprocessing_context="fork"))  # type: ignore
    assert torch.equal(torch.cat(rows), wanted)


def test_an_unchanged_archive_is_scanned_once(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.zip")
    source(path).check()
    monkeypatch.setattr(module.Archive, "read", None)
    source(path).check()


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (None, r"there is no 'dataset.json'"),
        (b"{}", "there is no 'labels'"),
        (b'{"labels": null}', "it is null"),
        (b"{", "it cannot be read"),
        (b"[" * 100_000, "it cannot be read"),
        ([["00000/img00000000.png", 0]], "19 images have none, first 00000/img00000001.png"),
        ([[name, -1] for name in NAMES], "-1 is none"),
        ([[name, [0.5, 0.5]] for name in NAMES], r"\[0.5, 0.5\] is none"),
        ([[name, True] for name in NAMES], "True is none"),
    ],
)
def test_bad_labels_are_one_sentence(tmp_path, labels, why):
    images = source(archive(tmp_path / "a.zip", labels), labels=True)
    with pytest.raises(
        ValueError, match=f"must hold dataset.json with a class, an integer >= 0, .* and {why}; use lab"
    ):
        images.check()
    assert images.num_classes == 0


def test_what_is_no_archive_of_images_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="^path=.* must be a zip archive of images, such as EDM's"):
        source(tmp_path / "none.zip").check()
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(ValueError, match="^path=.*text.zip must be a zip archive, and it is not: File is not a zip"):
        source(tmp_path / "text.zip").check()
    with zipfile.ZipFile(tmp_path / "latents.zip", "w") as file:
        file.writestr("img.npy", b"numbers")
    with pytest.raises(FileNotFoundError, match="at least 2 usable images .* it has 0; make it with EDM's"):
        source(tmp_path / "latents.zip").check()
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive(tmp_path / "twice.zip", more={NAMES[3]: b"other"})
    with pytest.raises(ValueError, match=f"must hold every name once, not {NAMES[3]} twice"):
        source(path).check()


def test_a_bomb_is_refused_unread(tmp_path, monkeypatch):
    bomb = archive(tmp_path / "a.zip", more={"bomb.png": bytes(70 * 2**20)}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 200_000
    read = []
    original = zipfile.ZipFile.read
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda self, m: read.append(m.filename) or original(self, m))
    with pytest.raises(ValueError, match="bomb.png: cannot be decoded .73400320 bytes unpacked, more than 67108864"):
        source(bomb).check()
    assert len(read) == 20 and "bomb.png" not in read
    assert source(bomb, on_bad="skip").train_size() == 18


def test_a_member_that_states_a_smaller_size_yields_no_more(tmp_path):
    path = archive(tmp_path / "a.zip", more={"liar.png": bytes(10**6)}, compression=zipfile.ZIP_DEFLATED)
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<L", 10**6), struct.pack("<L", 100)))
    with pytest.raises(ValueError, match="1 of 21 files are bad: liar.png: cannot be decoded"):
        source(path).check()


def test_damaged_and_encrypted_images_are_all_named(tmp_path):
    path = archive(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    content[content.find(png(PIXELS[2])) + 60] ^= 255
    central = content.rfind(NAMES[5].encode()) - 46
    content[central + 8] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="2 of 20 files are bad") as caught:
        source(path).check()
    assert f"{NAMES[5]}: cannot be decoded (encrypted)" in str(caught.value) and "Bad CRC-32" in str(caught.value)


@pytest.mark.parametrize(
    ("compression", "at"), [(zipfile.ZIP_DEFLATED, 4), (zipfile.ZIP_BZIP2, 8), (zipfile.ZIP_LZMA, 12)]
)
def test_labels_that_cannot_be_unpacked_are_one_sentence(tmp_path, compression, at):
    """zlib's error, bz2's, and LZMA's, were in the message alone, without the key and the file."""
    path = archive(tmp_path / "a.zip", compression=compression)
    with zipfile.ZipFile(path) as opened:
        member = opened.getinfo("dataset.json")
    content = bytearray(path.read_bytes())
    begin = member.header_offset + 30 + len(member.filename)
    content[begin : begin + at] = bytes([255] * at)
    path.write_bytes(bytes(content))
    found = source(path, labels=True)
    assert found.num_classes == 0
    with pytest.raises(
        ValueError, match=r"path=.*a\.zip must hold dataset.json .* and it cannot be read; use labels=false"
    ):
        found.check()


def test_a_training_on_it(in_folder, capsys):
    path = archive(in_folder / "edm.zip")
    options = ["dataset=zip_folder", f"dataset.source.path={path}", "dataset.source.image_size=8", "max_steps=2"]
    options += ["batch_size=4", "metrics=none", "dataset.conditional=true", f"dataset.source.cache_dir={in_folder}"]
    assert main(["train", *options]) == 0
    assert [run.name for run in (in_folder / "runs").iterdir()][0].startswith("zip_folder-logit_normal-v-min_snr-s0-")
    capsys.readouterr()
    assert main(["train", *options, "dataset.source.path=none.zip"]) == 2
    said = capsys.readouterr().err
    assert "path=none.zip must be a zip archive of images" in said
    assert "num_classes" not in said  # of the network: nobody knows how many there are
