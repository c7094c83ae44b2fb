from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from diffusion_lab.data import ImageFolder
from diffusion_lab.data.pixels import to_square
from diffusion_lab.data.sources import scan


@pytest.fixture(autouse=True)
def _noise(monkeypatch):
    """Every test draws its own noise from the start, whatever ran before it."""
    monkeypatch.setattr("tests.data.sources.test_image_folder.RNG", np.random.default_rng(0))


RNG = np.random.default_rng(0)


def picture(width: int = 24, height: int = 20, mode: str = "RGB") -> Image.Image:
    """A smooth picture with some noise, so that files are longer than their headers."""
    y, x = np.mgrid[:height, :width]
    colours = np.stack([x * 9, y * 11, x + y], 2) + RNG.integers(0, 30, (height, width, 3))
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8)).convert(mode)


def folder(root: Path, n: int = 10, below: str = "") -> Path:
    (root / below).mkdir(parents=True, exist_ok=True)
    for i in range(n):
        picture().save(root / below / f"{i:03}.{('png', 'jpg')[i % 2]}")
    return root


def source(root: Path, image_size: int = 16, **kwargs) -> ImageFolder:
    return ImageFolder(root, image_size, cache_dir=root.parent / "cache", **kwargs)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def bad_files(root: Path) -> dict[str, str]:
    """Ten kinds of bad files, and what must be said of each."""
    (root / "sub").mkdir(exist_ok=True)
    for name in ("truncated.png", "truncated.jpg"):
        picture(200, 200).save(root / name)
        (root / name).write_bytes((root / name).read_bytes()[:2000])
    (root / "empty.png").touch()
    (root / "sub" / "text.jpg").write_text("this is not an image")
    picture(1, 1).save(root / "dot.png")
    picture(200, 12).save(root / "flat.png")
    Image.fromarray(np.full((20, 20), 40_000, dtype=np.uint16)).save(root / "deep.png")
    Image.fromarray(np.full((20, 20), 0.5, dtype=np.float32)).save(root / "real.tif")
    picture(100, 100).save(root / "flipped.png")
    flip_a_bit(root / "flipped.png")
    (root / "dangling.png").symlink_to(root / "nowhere.png")
    return {
        "truncated.png": "cannot be decoded",
        "truncated.jpg": "cannot be decoded",
        "empty.png": "zero bytes",
        "sub/text.jpg": "not an image",
        "dot.png": "1 x 1 pixels, the shorter side must have 16",
        "flat.png": "200 x 12 pixels, the shorter side must have 16",
        "deep.png": "16-bit pixels (mode I;16) would be cut off at 255",
        "real.tif": "32-bit float pixels (mode F) would be cut off",
        "flipped.png": "cannot be decoded",
        "dangling.png": "missing",
    }


def test_all_bad_files_are_in_one_report(tmp_path):
    root = folder(tmp_path / "photos")
    expected = bad_files(root)
    with pytest.raises(ValueError) as caught:
        source(root).check()
    message = str(caught.value)
    assert message.startswith(f"root={root} must hold only usable images; 10 of 20 files are bad: ")
    assert message.endswith("or set on_bad=skip") and "\n" not in message
    listed = (tmp_path / "cache" / "bad-images.txt").read_text()
    assert f"; and 7 more, listed in {tmp_path}/cache/bad-images.txt. Repair" in message
    for name, why in expected.items():
        assert f"{name}: {why}" in listed
    assert sum(f"{name}: {why}" in message for name, why in expected.items()) == 3
    assert "000.png" not in listed


def test_every_flipped_bit_of_a_png_is_found(tmp_path):
    """Pillow decodes some of them without a word: the checksums of the pixels' chunks must be read as well."""
    for i in range(100):
        picture(100, 100).save(tmp_path / f"{i:03}.png")
        flip_a_bit(tmp_path / f"{i:03}.png")
    assert silent(tmp_path), "the control: some must pass Pillow's decoder"
    with pytest.raises(ValueError, match="100 of 100 files are bad"):
        source(tmp_path).check()


def silent(root: Path) -> list[Path]:
    """The files below `root` that Pillow decodes."""
    decoded = []
    for path in root.glob("*.png"):
        try:
            Image.open(path).load()
            decoded.append(path)
        except Exception:  # noqa: S112 - Pillow's decoders raise any class of error on damaged files
            continue
    return decoded


def test_bad_files_can_be_left_out(tmp_path, caplog):
    root = folder(tmp_path / "photos")
    bad_files(root)
    skipping = source(root, on_bad="skip")
    with caplog.at_level("INFO"):
        skipping.check()
    assert "10 images (10 RGB), 10 bad ones left out" in caplog.text
    assert len(skipping.train()) + len(skipping.test()) == 10


def test_many_bad_files_are_three_names_and_a_count(tmp_path):
    root = folder(tmp_path / "photos", 2)
    for i in range(130):
        (root / f"bad{i:03}.png").touch()
    three = "; ".join(f"bad{i:03}.png: zero bytes" for i in range(3))
    with pytest.raises(ValueError, match=rf"130 of 132 files are bad: {three}; and 127 more, listed in .*\. Repair"):
        source(root).check()
    (tmp_path / "cache" / "bad-images.txt").unlink()
    (tmp_path / "cache" / "bad-images.txt").mkdir()  # it cannot be written
    with pytest.raises(ValueError, match=r"and 127 more\. Repair"):
        source(root).check()


def test_images_that_are_too_small_are_told_the_size_that_fits(tmp_path):
    root = tmp_path / "photos"
    for i in range(6):
        folder(root, 1, f"{i}").joinpath(f"{i}", "000.png")
        picture(48, 40 + i).save(root / f"{i}" / "000.png")
    said = r"6 of 6 files are bad: .*; and 3 more, .*\. Use image_size=40, or min_size=40 to enlarge them"
    with pytest.raises(ValueError, match=said):
        source(root, 64).check()
    source(root, 40).check()
    source(root, 64, min_size=40).check()


def test_small_images_are_allowed_when_asked(tmp_path):
    root = folder(tmp_path / "photos", 4)
    picture(12, 12).save(root / "small.png")
    with pytest.raises(ValueError, match="small.png: 12 x 12 pixels"):
        source(root).check()
    assert source(root, min_size=8).train_size() == 4


def test_images_are_resized_and_cropped_like_this(tmp_path):
    root = folder(tmp_path / "photos", 6)
    images = source(root, 8)
    train, test = images.train(), images.test()
    assert train.images.shape == (5, 3, 8, 8) and len(test) == 1 and images.train_size() == 5
    files = sorted(root.iterdir())
    held_out = np.random.RandomState(0).permutation(6)[0]
    kept = [path for i, path in enumerate(files) if i != held_out]
    for image, path in zip(train.images, kept, strict=True):
        want = ImageOps.fit(Image.open(path), (8, 8), Image.Resampling.BICUBIC)  # crops first, then resizes
        assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - np.asarray(want)).max() <= 16
    assert train.labels is None and images.num_classes is None


def test_resizing_is_antialiased():
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255
    grey = to_square(Image.fromarray(stripes), 8, 1)
    assert grey.shape == (1, 8, 8) and np.abs(grey[..., 1:-1].astype(int) - 127).max() <= 2


def test_the_crop_is_central_and_an_exact_size_is_not_resampled():
    wide = RNG.integers(0, 256, (8, 14, 3), dtype=np.uint8)
    assert np.array_equal(to_square(Image.fromarray(wide), 8, 3), wide[:, 3:11].transpose(2, 0, 1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK", "1", "RGBA", "LA"])
def test_every_mode_becomes_the_channels_asked_for(mode, channels):
    image = picture(mode="RGBA").convert(mode) if mode in ("RGBA", "LA") else picture(mode=mode)
    pixels = to_square(image, 8, channels)
    assert pixels.shape == (channels, 8, 8) and pixels.dtype == np.uint8


def test_transparent_pixels_become_white_and_rotations_are_applied():
    clear = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    assert (to_square(clear, 8, 3) == 255).all()
    tall = Image.fromarray(np.repeat(np.arange(8, dtype=np.uint8)[:, None] * 30, 8, 1))
    tall.getexif()[0x0112] = 3  # stored upside down
    assert np.array_equal(to_square(tall, 8, 1), np.asarray(tall)[None, ::-1, ::-1])


def test_modes_are_counted(tmp_path, caplog):
    root = folder(tmp_path / "photos", 4)
    picture(mode="L").save(root / "grey.png")
    with caplog.at_level("INFO"):
        source(root).check()
    assert "5 images (4 RGB, 1 L)" in caplog.text


def test_a_second_scan_reads_only_what_changed(tmp_path, monkeypatch):
    root = folder(tmp_path / "photos", 6)
    decode = Mock(wraps=scan._decode)
    monkeypatch.setattr(scan, "_decode", decode)
    first = scan.scan(root, tmp_path / "cache")
    assert len(decode.call_args_list) == 6
    assert scan.scan(root, tmp_path / "cache") == first and len(decode.call_args_list) == 6
    (root / "001.jpg").write_text("now it is text")
    os.utime(root / "002.png", ns=(1, 1))
    (root / "005.jpg").unlink()
    picture().save(root / "new.png")
    again = scan.scan(root, tmp_path / "cache")
    assert sorted(call.args[0].name for call in decode.call_args_list[6:]) == ["001.jpg", "002.png", "new.png"]
    assert [seen.name for seen in again if seen.error] == ["001.jpg"] and len(again) == 6
    for cache in (tmp_path / "cache").iterdir():
        cache.write_text("[{")  # torn: all are read again
    assert scan.scan(root, tmp_path / "cache") == again


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    root = folder(tmp_path / "photos", 3)
    (tmp_path / "file").touch()
    assert len(scan.scan(root, tmp_path / "file" / "cache")) == 3


def test_hidden_and_other_files_are_passed_over(tmp_path):
    root = folder(tmp_path / "photos", 3)
    (root / "readme.txt").write_text("hello")
    (root / ".hidden.png").touch()
    folder(root, 1, ".thumbnails")
    assert [seen.name for seen in scan.scan(root, tmp_path / "cache")] == ["000.png", "001.jpg", "002.png"]


def damaged_exif() -> list[tuple[str, bytes, int]]:
    """Pictures whose EXIF data Pillow cannot read, or cannot write again: name, content, and their orientation."""
    found = []
    exif = Image.Exif()
    exif[0x0112], exif[0x0128] = 6, "x"  # a unit of resolution that is a text: Pillow does not write it
    for suffix, content in (("png", b"Exif\0\0XX\0*\0\0\0\x08"), ("webp", b"Exif\0\0XX\0*\0\0\0\x08")):
        buffer = io.BytesIO()
        picture().save(buffer, suffix, exif=content, **({"lossless": True} if suffix == "webp" else {}))
        found.append((f"bad.{suffix}", buffer.getvalue(), 1))
    buffer = io.BytesIO()
    picture().save(buffer, "jpeg", exif=_tiff(6))
    found.append(("turned.jpg", buffer.getvalue(), 6))
    return found


def _tiff(orientation: int) -> bytes:
    """EXIF data with an orientation and a unit of resolution that is a text."""
    entries = struct.pack("<HHI4s", 0x0112, 3, 1, struct.pack("<HH", orientation, 0))
    entries += struct.pack("<HHI4s", 0x0128, 2, 2, b"x\0\0\0")
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)


@pytest.mark.parametrize(("name", "content", "orientation"), damaged_exif(), ids=lambda value: str(value)[:10])
def test_damaged_exif_data_are_no_reason_not_to_train(tmp_path, name, content, orientation):
    """The scan passed, and the run then failed without the file's name, with on_bad=skip as well."""
    with Image.open(io.BytesIO(content)) as image, pytest.raises((SyntaxError, struct.error, TypeError)):
        ImageOps.exif_transpose(image)
    root = folder(tmp_path / "photos", 3)
    (root / name).write_bytes(content)
    images = source(root, image_size=20, on_bad="error")
    assert len(images.train()) + len(images.test()) == 4
    with Image.open(io.BytesIO(content)) as image:
        stored = np.asarray(image.convert("RGB"))
        turned = np.rot90(stored, -1) if orientation == 6 else stored
        height, width = turned.shape[:2]
        top, left = (height - 20) // 2, (width - 20) // 2
        np.testing.assert_array_equal(
            to_square(image, 20, 3), turned[top : top + 20, left : left + 20].transpose(2, 0, 1)
        )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_pillow_turns_them(orientation):
    image = picture(30, 20)
    image.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(image).resize((30, 20) if orientation < 5 else (20, 30)))
    top, left = (upright.shape[0] - 20) // 2, (upright.shape[1] - 20) // 2
    np.testing.assert_array_equal(to_square(image, 20, 3), upright[top : top + 20, left : left + 20].transpose(2, 0, 1))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["tiff", "jpeg", "png", "webp"])
def test_files_of_all_kinds_are_turned_once(kind, orientation):
    """Pillow turns a TIFF when it loads it, and no other kind."""
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    more = {"tiffinfo": {0x0112: orientation}} if kind == "tiff" else {"exif": exif}
    picture(30, 20).save(buffer, kind, **more)
    with Image.open(io.BytesIO(buffer.getvalue())) as image, Image.open(io.BytesIO(buffer.getvalue())) as other:
        upright = np.asarray(ImageOps.exif_transpose(other).convert("RGB"))
        top, left = (upright.shape[0] - 20) // 2, (upright.shape[1] - 20) // 2
        found = to_square(image, 20, 3)
    np.testing.assert_array_equal(found, upright[top : top + 20, left : left + 20].transpose(2, 0, 1))


def test_folders_are_classes_when_asked(tmp_path):
    root = tmp_path / "pets"
    for name, n in (("dogs", 4), ("cats", 5)):
        folder(root, n, name)
    images = source(root, class_folders=True, test_share=0.3)
    assert images.num_classes == 2
    labels = torch.cat([images.train().labels, images.test().labels])
    assert torch.bincount(labels).tolist() == [5, 4]  # cats come first
    assert hasattr(images.train(), "images")  # resident
    assert source(root).train().labels is None
    (root / "birds").mkdir()
    assert len(source(root).train()) == 8  # without classes an empty folder, or one of other files, is none of ours
    with pytest.raises(ValueError, match="usable image in every class folder, birds has none"):
        source(root, class_folders=True).check()
    (root / "birds").rmdir()
    picture().save(root / "loose.png")
    with pytest.raises(ValueError, match="only inside its class folders, not loose.png"):
        source(root, class_folders=True).check()


def test_images_beyond_the_budget_are_decoded_when_taken(tmp_path):
    root = tmp_path / "pets"
    for name in ("a", "b"):
        folder(root, 5, name)
    resident = source(root, class_folders=True)
    streamed = source(root, class_folders=True, memory_mb=0)
    for split in ("train", "test"):
        held, read = getattr(resident, split)(), getattr(streamed, split)()
        assert hasattr(held, "images") and not hasattr(read, "images") and len(held) == len(read)
        ids = list(range(len(held)))[::-1]
        assert torch.equal(held.take(ids), read.take(ids)) and torch.equal(held.labels, read.labels)
        assert torch.equal(held.take(torch.tensor(ids)), read.take(torch.tensor(ids)))
        assert held.fingerprint() == read.fingerprint()
    assert source(root, image_size=8).train().fingerprint() != resident.train().fingerprint()


def test_the_split_does_not_overlap(tmp_path):
    root = folder(tmp_path / "photos", 10)
    images = source(root, test_share=0.25, memory_mb=0)
    train, test = ({file.name for file in split.seen} for split in (images.train(), images.test()))
    assert len(train) == 7 and len(test) == 3 and not train & test


def test_no_folder_and_no_images(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"root={tmp_path}/x must be a folder of images"):
        source(tmp_path / "x").check()
    with pytest.raises(FileNotFoundError, match="must hold at least 2 usable images .* has 0"):
        source(tmp_path).check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(image_size=0), "image_size=0 must be an integer >= 1"),
        (dict(channels=4), r"channels=4 must be 1 \(grey\) or 3"),
        (dict(test_share=0), r"test_share=0 must lie in \(0, 1\)"),
        (dict(test_share=1.0), "test_share=1.0 must lie"),
        (dict(min_size=0), "min_size=0 must be an integer >= 1"),
        (dict(on_bad="ignore"), "on_bad=ignore must be error or skip"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        source(tmp_path, **arguments)


def test_a_picture_of_16_bits_a_colour_is_not_cut_off(tmp_path):
    """Pillow reads 16-bit RGB by its high bytes, which is right; only grey 16-bit images would be cut off."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + struct.pack(">48H", *[40_000] * 48) for _ in range(16))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0))
    (tmp_path / "a.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    with Image.open(tmp_path / "a.png") as image:
        assert (to_square(image, 16, 3) == 40_000 >> 8).all()


def _drawn(root: Path, values: list[int], mode: str = "L") -> ImageFolder:
    """One 16 x 16 picture per value, half 0 and half that value."""
    root.mkdir()
    for i, value in enumerate(values):
        pixels = np.zeros((16, 16), np.uint8)
        pixels[8:] = value
        Image.fromarray(pixels).convert(mode).save(root / f"{i:02}.png")
    return source(root, channels=1)


@pytest.mark.parametrize("memory_mb", [100, 0.0001])
def test_the_values_of_a_folder_are_judged_as_a_whole_by_its_scan(tmp_path, memory_mb):
    black, sparse = _drawn(tmp_path / "black", [0] * 10), _drawn(tmp_path / "sparse", [0] * 19 + [255])
    masks, halves = _drawn(tmp_path / "masks", [1] * 10), _drawn(tmp_path / "halves", [0, 1] * 10 + [9])
    for one in (black, sparse, masks, halves):
        one.memory_mb = memory_mb
    for one in (black, sparse, halves):
        one.check_values(("train", "test"))
    with pytest.raises(ValueError, match="^source=masks must give bytes 0..255, but all images lie in 0..1"):
        masks.check_values()
    palette = _drawn(tmp_path / "palette", [1] * 10, "1")
    palette.check_values()
