"""Decoded images in the folder of caches: the same pixels in the same order, whatever becomes of the files."""

from __future__ import annotations

import io
import logging
import os
import resource
import shutil
import signal
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from diffusion_lab.data import ArrayImages, ImageDataModule, ImageFolder, ZipFolder
from diffusion_lab.data.pixels import Square
from diffusion_lab.data.sources import decoded
from diffusion_lab.data.sources.encoded_images import EncodedImages
from diffusion_lab.data.sources.scan import scan_rows
from tests.data.fakes import first_batches
from tests.harness import Child

N, PIXELS = 40, np.random.default_rng(0).integers(0, 256, (40, 10, 8, 3), np.uint8)
TRUTH = torch.from_numpy(PIXELS[:, 1:9].transpose(0, 3, 1, 2).copy())


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def held(
    folder: Path, read: Callable[[int], bytes] = lambda i: png(PIXELS[i]), cache_gb: float = 1.0, side: int = 8
) -> ArrayImages:
    """All images, at a start of a process that reads them with `read`."""
    seen = scan_rows([f"{i:02}" for i in range(N)], lambda i: png(PIXELS[i]), folder / "scan.json")
    images = EncodedImages(read, range(N), seen, Square(side), None).held(N, 100, cache_gb, folder)
    assert isinstance(images, ArrayImages)
    return images


def unread(i: int) -> bytes:
    raise AssertionError("an image is decoded again")


def only_file(folder: Path) -> Path:
    (path,) = (folder / "decoded").glob("*.u8")
    return path


def test_batches_are_the_same_with_and_without_the_cache(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for i in range(N):
        (root / f"{i:02}.png").write_bytes(png(PIXELS[i]))

    def batches(**options) -> list[torch.Tensor]:
        images = ImageFolder(root, 8, cache_dir=tmp_path / "cache", **options)
        rows = first_batches(ImageDataModule(images, 6, flip=True), 8)
        return [*(batch[key] for batch in rows for key in ("image", "index")), images.test().take(range(4))]

    plain = batches(cache_gb=0)
    assert not (tmp_path / "cache" / "decoded").exists()
    written = batches()
    for path in root.iterdir():  # a start that decoded anything would find what is no image
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for found in (written, batches()):
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    with pytest.raises(OSError, match="cannot identify image"):
        batches(cache_gb=0)


def test_an_archive_and_a_folder_share_their_files_and_other_sizes_do_not(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for i in range(N):
            file.writestr(f"{i:02}.png", png(PIXELS[i]))
    shutil.unpack_archive(tmp_path / "photos.zip", tmp_path / "photos")
    of_folder = ImageFolder(tmp_path / "photos", 8, cache_dir=tmp_path / "cache").train()
    of_archive = ZipFolder(tmp_path / "photos.zip", 8, cache_dir=tmp_path / "cache").train()
    assert torch.equal(of_folder.take(range(36)), of_archive.take(range(36)))
    only_file(tmp_path / "cache")
    ZipFolder(tmp_path / "photos.zip", 6, cache_dir=tmp_path / "cache").train()
    assert len([*(tmp_path / "cache" / "decoded").glob("*.u8")]) == 2


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "bit": _flip,
    "cut": lambda path: os.truncate(path, 100),
    "without its record": lambda path: os.truncate(path, N * 192),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" 1"),
    "version": lambda path: path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 0')),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_written_anew_and_named_in_one_line(tmp_path: Path, caplog, damage) -> None:
    assert torch.equal(held(tmp_path).images, TRUTH)
    assert torch.equal(held(tmp_path, unread).images, TRUTH) and not caplog.records
    damage(only_file(tmp_path))
    assert torch.equal(held(tmp_path).images, TRUTH)
    (line,) = caplog.messages
    assert line.startswith(f"{only_file(tmp_path)} ") and line.endswith(": the images are decoded again")
    assert torch.equal(held(tmp_path, unread).images, TRUTH) and len(caplog.records) == 1


def _full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded.shutil, "disk_usage", lambda path: SimpleNamespace(free=N * 192))


def _limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    monkeypatch.setattr(decoded.log, "warning", _restoring(limits, decoded.log.warning))


def _restoring(limits: tuple[int, int], warn: Callable[..., None]) -> Callable[..., None]:
    """Pytest writes files as well."""

    def warning(*words: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        warn(*words)

    return warning


NO_ROOM: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "no folder": lambda folder, monkeypatch: (folder / "decoded").touch(),
    "full": _full,
    "limited": _limited,
}


@pytest.mark.parametrize("way", NO_ROOM)
def test_images_that_cannot_be_kept_are_in_memory_and_one_line_says_so(tmp_path, caplog, monkeypatch, way) -> None:
    NO_ROOM[way](tmp_path, monkeypatch)
    assert torch.equal(held(tmp_path).images, TRUTH)
    (line,) = caplog.messages
    assert line.startswith("decoded images are not kept for the next start: ")
    assert not [*(tmp_path / "decoded").glob("*.[up]*")]  # nor half a file


def test_a_killed_writer_leaves_nothing_behind_the_next_one(tmp_path: Path, caplog) -> None:
    def killed(i: int) -> bytes:
        if i == N - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return png(PIXELS[i])

    child = Child(lambda: held(tmp_path, killed), tmp_path / "log")
    assert child.wait(60) == -signal.SIGKILL
    assert [*(tmp_path / "decoded").glob("*.partial")] and not [*(tmp_path / "decoded").glob("*.u8")]
    assert torch.equal(held(tmp_path).images, TRUTH) and not caplog.records
    assert not [*(tmp_path / "decoded").glob("*.partial")] and torch.equal(held(tmp_path, unread).images, TRUTH)


def test_of_processes_that_start_together_one_decodes(tmp_path: Path) -> None:
    def noted(i: int) -> bytes:
        with open(tmp_path / "decoded-by", "a") as file:
            file.write(f"{os.getpid()}\n")
        return png(PIXELS[i])

    def start() -> None:
        seen = scan_rows([f"{i:02}" for i in range(N)], noted, tmp_path / "scan.json")
        images = EncodedImages(noted, range(N), seen, Square(8), None).held(N, 100, 1.0, tmp_path)
        assert torch.equal(images.take(range(N)), TRUTH)

    children = [Child(start, tmp_path / f"log-{i}") for i in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    by = Counter((tmp_path / "decoded-by").read_text().split())
    assert by.total() == 2 * N and all(count % N == 0 for count in by.values())  # a scan and a decoding, not three


def test_the_folder_is_bounded_and_what_was_used_last_stays(tmp_path: Path, caplog) -> None:
    def names() -> set[str]:
        return {path.name for path in (tmp_path / "decoded").glob("*.u8")}

    room = 2 * (N * 192 + 200) / 2**30
    held(tmp_path, cache_gb=room, side=8)
    first = names()
    os.utime(only_file(tmp_path), (1, 1))
    held(tmp_path, cache_gb=room, side=7)
    second = names() - first
    held(tmp_path, unread, cache_gb=room, side=8)  # used again
    used = held(tmp_path, cache_gb=room, side=6)
    assert names() >= first and not names() & second and len(names()) == 2 and not caplog.records
    both = used, held(tmp_path, unread, cache_gb=room, side=8)
    assert held(tmp_path, cache_gb=room, side=9).images.shape[-1] == 9  # both files are open, and stay
    assert names() >= first and len(names()) == 2 and "of cache_gb=" in caplog.text
    assert torch.equal(both[1].images, TRUTH)


def test_an_image_that_is_not_the_scanned_one_is_kept_under_no_name(tmp_path: Path, caplog) -> None:
    changed = held(tmp_path, lambda i: png(PIXELS[(i + 1) % N]))
    assert torch.equal(changed.images, TRUTH.roll(-1, 0)) and "00 has changed since the scan" in caplog.text
    assert torch.equal(held(tmp_path).images, TRUTH)


def test_a_file_that_is_gone_while_the_folder_is_read_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "decoded").mkdir()
    (tmp_path / "decoded" / "gone.u8").symlink_to("nothing")
    held(tmp_path)
    assert torch.equal(held(tmp_path, unread).images, TRUTH)


def test_a_write_into_the_array_stays_in_its_process(tmp_path: Path) -> None:
    held(tmp_path).images.zero_()
    assert torch.equal(held(tmp_path, unread).images, TRUTH)


@pytest.fixture(autouse=True)
def _only_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
