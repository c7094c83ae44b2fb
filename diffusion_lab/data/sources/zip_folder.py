"""A zip archive of images, as EDM's `dataset_tool.py` writes it (Karras et al. 2022, arXiv:2206.00364).

    00000/img00000000.png, ...     the images, in any folders
    dataset.json                   {"labels": [["00000/img00000000.png", 6], ...]}, or null for labels; optional

The archive stays as it is: members are read into memory one at a time and nothing is ever written to the disk, so their
names need not be safe. The test images are chosen as those of a folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.cache_folder import cache_folder
from diffusion_lab.data.resize import Square
from diffusion_lab.data.source import ImageSet, ImageSource
from diffusion_lab.data.sources.encoded_images import (
    EncodedImages,
    bad_images,
    check_min_size,
    check_on_bad,
    check_test_share,
    random_split,
)
from diffusion_lab.data.sources.scan import Seen, count_modes, scan_rows
from diffusion_lab.data.sources.walk import counted
from diffusion_lab.data.sources.zip_archive import LABELS, Archive

log = logging.getLogger(__name__)


class ZipFolder(ImageSource):
    """The images of a zip archive, as (channels, image_size, image_size) uint8.

    Every image is checked before training, as those of `ImageFolder`. Images of EDM's tool have the right size already;
    others are resized and cropped (`data/resize.py`).
    Differs from EDM: it trains on all images, here `test_share` of them are held out, because validation needs them.

    Args:
        path: the archive.
        image_size: pixels along a side after resizing and cropping.
        channels: 1 or 3.
        resize: bicubic, or box_bicubic as for ImageNet.
        labels: whether the classes are read from dataset.json.
        test_share: share of the images in the test split, in (0, 1).
        min_size: minimum length of an image's shorter side in pixels; None: image_size, so nothing is enlarged.
        on_bad: "error" stops when an image is bad, "skip" leaves bad images out and logs how many.
        memory_mb: keep the decoded images in memory if they fit into this many megabytes (2^20 bytes).
        cache_dir: folder of the checks' results; None: `cache_folder()`.

    Raises:
        ValueError: an argument outside its range; not a zip archive; bad images or labels (from `check` and on
            loading).
        FileNotFoundError: no file, or no images in it (from `check` and on loading).
    """

    def __init__(
        self,
        path: ReadPath,
        image_size: int,
        channels: int = 3,
        resize: str = "bicubic",
        labels: bool = False,
        test_share: float = 0.1,
        min_size: int | None = None,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
    ) -> None:
        super().__init__()
        self.square = Square(image_size, channels, resize)
        check_test_share(test_share)
        check_min_size(min_size)
        check_on_bad(on_bad)
        self.path = Path(path).expanduser()
        self.name = self.path.stem or "zip_folder"
        self.image_size, self.channels = image_size, channels
        self.labels, self.test_share, self.on_bad, self.memory_mb = labels, test_share, on_bad, memory_mb
        self.min_size = image_size if min_size is None else min_size
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else cache_folder()
        self._archive: Archive | None = None
        self._classes: list[int] | None = None
        self._good: list[Seen] = []
        self._ids: dict[str, list[int]] = {}

    @property
    def num_classes(self) -> int | None:
        """The largest label + 1; None without labels, 0 if they cannot be read; `check` then raises the error."""
        if not self.labels:
            return None
        try:
            return max(self._labels(), default=-1) + 1
        except (ValueError, FileNotFoundError):
            return 0

    def check(self) -> None:
        if self._ids:
            return
        archive = self._opened()
        names = list(archive.images)
        known = self._labels() if self.labels else []
        stamp = f"{self.path.resolve()} {self.path.stat().st_mtime_ns} {self.path.stat().st_size}"
        kept = self.cache_dir / f"scan-zip-{hashlib.sha256(os.fsencode(stamp)).hexdigest()[:16]}.json"
        seen = scan_rows(names, lambda i: archive.read(names[i]), kept)
        faults = {one.name: fault for one in seen if (fault := one.fault(self.min_size))}
        if faults and self.on_bad == "error":
            raise bad_images(f"path={self.path}", faults, seen, self.cache_dir)
        good = [i for i, one in enumerate(seen) if one.name not in faults]
        if len(good) < 2:
            raise FileNotFoundError(
                f"path={self.path} must hold at least 2 usable images (one to train, one to test); it has {len(good)}; "
                "make it with EDM's dataset_tool.py, or zip a folder of images"
            )
        self._good = [seen[i] for i in good]
        self._classes = [known[i] for i in good] if self.labels else None
        if archive.left_out:
            log.info("%s: left out: %s", self.path, counted(archive.left_out))
        left_out = f", {len(faults)} bad ones left out" if faults else ""
        log.info("%s: %d images (%s)%s", self.path, len(good), count_modes(self._good), left_out)
        self._ids = random_split(len(good), self.test_share)

    def train_size(self) -> int:
        self.check()
        return len(self._ids["train"])

    def load(self, split: str) -> ImageSet:
        images = self._encoded(split)
        return images.held(len(self._good), self.memory_mb)

    def listed(self, split: str) -> ImageSet:
        return self._encoded(split)

    def _encoded(self, split: str) -> ArchivedImages:
        self.check()
        ids = self._ids[split]
        labels = None if self._classes is None else torch.tensor([self._classes[i] for i in ids])
        return ArchivedImages(self._opened(), [self._good[i] for i in ids], self.square, labels)

    def _opened(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self.path)
        return self._archive

    def _labels(self) -> list[int]:
        """The class of each image, in the order of the archive's images."""
        archive = self._opened()
        try:
            content = json.loads(archive.read(LABELS))["labels"]
            of = {name.replace("\\", "/"): label for name, label in content}
        except KeyError as error:
            raise self._unlabelled(f"there is no {error}") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self._unlabelled("it is null" if _null(archive) else "it cannot be read") from None
        lost = [name for name in archive.images if name not in of]
        if lost:
            raise self._unlabelled(f"{len(lost)} images have none, first {lost[0]}")
        found = [of[name] for name in archive.images]
        odd = [label for label in found if type(label) is not int or not 0 <= label < 2**31]
        if odd:
            raise self._unlabelled(f"{str(odd[0])[:40]} is none")
        return found

    def _unlabelled(self, why: str) -> ValueError:
        return ValueError(
            f"path={self.path} must hold {LABELS} with a class, an integer >= 0, for every image, and {why}; use "
            "labels=false to train without classes"
        )


class ArchivedImages(EncodedImages):
    """Members of a zip archive.

    Args:
        archive: the archive.
        seen, square, labels: as `EncodedImages`.
    """

    def __init__(self, archive: Archive, seen: Sequence[Seen], square: Square, labels: Tensor | None) -> None:
        super().__init__(seen, square, labels)
        self.archive = archive

    def read(self, i: int) -> bytes:
        return self.archive.read(self.seen[i].name)


def _null(archive: Archive) -> bool:
    try:
        return json.loads(archive.read(LABELS))["labels"] is None
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
