"""Any folder of images: scanned, resized, cropped, and held in memory where it fits.

    scale = image_size / min(width, height), bicubic and antialiased;  then the central image_size x image_size

The images are split once: RandomState(0).permutation(N) of the sorted names, the first ceil(test_share N) places are
test images. The split does not depend on the run's seed.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from diffusion_lab.data.scan import Seen, count_modes, in_threads, scan
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource

log = logging.getLogger(__name__)
MOST_NAMED = 100  # bad files that an error names one by one


class ImageFolder(ImageSource):
    """All images below a folder, as (channels, image_size, image_size) uint8.

    Every file is looked at before training (`check`), and all bad ones are reported together: truncated, empty, not
    an image, damaged, 16 or 32 bits a channel, too small. A look is kept, so only new files cost time again.
    `channels=3` turns grey and palette images into RGB, `channels=1` takes the luminance; transparent pixels become
    white; EXIF rotations are applied.

    Args:
        root: the folder; subfolders are searched too.
        image_size: pixels of a side after resizing and cropping.
        channels: 1 or 3.
        class_folders: the first level of subfolders are the classes, numbered in sorted order.
        test_share: share of the images that training never sees, in (0, 1).
        min_size: smallest shorter side that an image may have, pixels; None: image_size, so nothing is enlarged.
        on_bad: "error" stops when a file is bad, "skip" leaves bad files out and says how many.
        memory_mb: resident while the decoded images fit into this many megabytes (2^20 bytes); beyond, they are
            decoded again for every batch, which wants workers.
        cache_dir: where looks are kept; None: diffusion_lab below $XDG_CACHE_HOME or ~/.cache.

    Raises:
        ValueError: an argument outside its range; bad files or empty class folders (from `check` and on loading).
        FileNotFoundError: no folder, or no images in it (from `check` and on loading).
    """

    def __init__(
        self,
        root: str | Path,
        image_size: int,
        channels: int = 3,
        class_folders: bool = False,
        test_share: float = 0.1,
        min_size: int | None = None,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: str | Path | None = None,
    ) -> None:
        super().__init__()
        if image_size < 1:
            raise ValueError(f"image_size={image_size} must be at least 1 pixel; use 32 or 64")
        if channels not in (1, 3):
            raise ValueError(f"channels={channels} must be 1 (grey) or 3 (RGB); use 3 for colour photographs")
        if not 0 < test_share < 1:
            raise ValueError(f"test_share={test_share} must lie in (0, 1); use 0.1 to hold out every tenth image")
        if min_size is not None and min_size < 1:
            raise ValueError(f"min_size={min_size} must be at least 1 pixel; null forbids enlarging")
        if on_bad not in ("error", "skip"):
            raise ValueError(f"on_bad={on_bad} must be error or skip; use error to be told of bad files")
        self.root = Path(root).expanduser()
        self.name = self.root.name or "image_folder"
        self.image_size, self.channels = image_size, channels
        self.class_folders, self.test_share = class_folders, test_share
        self.min_size = image_size if min_size is None else min_size
        self.on_bad, self.memory_mb = on_bad, memory_mb
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else _default_cache()
        self._files: list[Seen] | None = None

    @property
    def num_classes(self) -> int | None:
        """Number of class folders; None without them, also as long as `root` is not there."""
        return (len(self._classes()) or None) if self.class_folders else None

    def check(self) -> None:
        self._good_files()

    def train_size(self) -> int:
        return len(self._ids("train"))

    def load(self, split: str) -> ImageSet:
        good, ids = self._good_files(), self._ids(split)
        files = FolderImages(self.root, [good[i] for i in ids], self.image_size, self.channels, self._labels(ids))
        megabytes = len(good) * self.channels * self.image_size**2 / 2**20
        if megabytes > self.memory_mb:
            log.info("%.0f MB of images exceed memory_mb=%g: decoding for every batch", megabytes, self.memory_mb)
            return files
        return files.resident()

    def _good_files(self) -> list[Seen]:
        """The files to use; scanned once per object."""
        if self._files is None:
            if not self.root.is_dir():
                raise FileNotFoundError(
                    f"root={self.root} must be a folder of images; there is none at {self.root.absolute()}"
                )
            seen = scan(self.root, self.cache_dir)
            faults = {file.name: fault for file in seen if (fault := file.fault(self.min_size))}
            if faults and self.on_bad == "error":
                raise ValueError(_report(self.root, faults, len(seen)))
            good = [file for file in seen if file.name not in faults]
            self._check_enough(good)
            self._check_classes(good)
            left_out = f", {len(faults)} bad ones left out" if faults else ""
            log.info("%s: %d images (%s)%s", self.root, len(good), count_modes(good), left_out)
            self._files = good
        return self._files

    def _check_enough(self, good: list[Seen]) -> None:
        if len(good) < 2:
            raise FileNotFoundError(
                f"root={self.root} must hold at least 2 usable images (one to train, one to test); "
                f"{self.root.absolute()} has {len(good)}"
            )

    def _check_classes(self, good: list[Seen]) -> None:
        if not self.class_folders:
            return
        loose = [file.name for file in good if "/" not in file.name]
        if loose:
            raise ValueError(
                f"root={self.root} must hold images only inside its class folders, not {', '.join(loose[:8])}; "
                "move them or set class_folders=false"
            )
        empty = sorted(set(self._classes()) - {file.name.split("/")[0] for file in good})
        if empty:
            raise ValueError(
                f"root={self.root} must hold a usable image in every class folder, {', '.join(empty[:8])} has none; "
                "remove it or set class_folders=false"
            )

    def _classes(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and path.name[0] != ".")

    def _ids(self, split: str) -> list[int]:
        total = len(self._good_files())
        order = np.random.RandomState(0).permutation(total)
        test = min(math.ceil(self.test_share * total), total - 1)
        return sorted((order[:test] if split == "test" else order[test:]).tolist())

    def _labels(self, ids: Sequence[int]) -> Tensor | None:
        if not self.class_folders:
            return None
        number = {name: label for label, name in enumerate(self._classes())}
        return torch.tensor([number[self._good_files()[i].name.split("/")[0]] for i in ids])


class FolderImages(ImageSet):
    """Images that are decoded when they are taken.

    Args:
        root: folder that the files' names start from.
        files: what the scan saw.
        image_size: pixels of a side after resizing and cropping.
        channels: 1 or 3.
        labels: (N,) int64, or None.
    """

    def __init__(self, root: Path, files: list[Seen], image_size: int, channels: int, labels: Tensor | None) -> None:
        self.root, self.files = root, files
        self.image_size, self.channels = image_size, channels
        self.labels = labels

    def __len__(self) -> int:
        return len(self.files)

    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        return torch.from_numpy(np.stack([self._decode(self.files[int(i)]) for i in ids]))

    def fingerprint(self) -> str:
        """Of the files' contents and the size they are brought to, known from the scan without decoding."""
        text = "".join([*(file.sha256 for file in self.files), f"{self.channels}x{self.image_size}"])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def resident(self) -> ArrayImages:
        """All of them decoded once, with a progress bar."""
        return _ResidentFolder(self, np.stack(in_threads(self._decode, self.files, "decode")))

    def _decode(self, file: Seen) -> np.ndarray:
        with Image.open(self.root / file.name) as image:
            return to_square(image, self.image_size, self.channels)


class _ResidentFolder(ArrayImages):
    """Keeps the fingerprint of the files, so that it does not depend on whether they fit into memory."""

    def __init__(self, files: FolderImages, images: np.ndarray) -> None:
        super().__init__(torch.from_numpy(images), files.labels)
        self._fingerprint = files.fingerprint()


def to_square(image: Image.Image, image_size: int, channels: int) -> np.ndarray:
    """(channels, image_size, image_size) uint8: shorter side resized to image_size, centre cropped."""
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    scale = image_size / min(image.size)
    width, height = (max(image_size, round(side * scale)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)  # Pillow antialiases when it shrinks
    left, top = (width - image_size) // 2, (height - image_size) // 2
    pixels = np.asarray(image.crop((left, top, left + image_size, top + image_size)))
    return np.ascontiguousarray(pixels.reshape(image_size, image_size, channels).transpose(2, 0, 1))


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffusion_lab"


def _report(root: Path, faults: dict[str, str], total: int) -> str:
    lines = [f"{name}: {fault}" for name, fault in list(faults.items())[:MOST_NAMED]]
    more = f"; and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
    return (
        f"root={root} must hold only usable images; {len(faults)} of {total} files are bad: {'; '.join(lines)}{more}. "
        "Repair or remove them, or set on_bad=skip"
    )
