"""Any folder of images: scanned, resized, cropped (`data/pixels.py`), and kept in memory if it fits.

The test images are those of `random_split` of the sorted names.

A data set that is published as a folder is a subclass that defines its content and where to get it (`content`, `cure`)
and, if the data set has them, its own split (`_split`) and class folders (`_classes`, `_class_of`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.pixels import Square
from diffusion_lab.data.sources.encoded_images import EncodedImages, EncodedSource, random_split
from diffusion_lab.data.sources.scan import Seen, scan
from diffusion_lab.data.sources.walk import subfolders

log = logging.getLogger(__name__)


class ImageFolder(EncodedSource):
    """All images below a folder, as (channels, image_size, image_size) uint8, each file once, also if links lead to it.

    Every file is checked before training (`check`), and all bad ones are reported together: truncated, empty, not an
    image, damaged, 16 or 32 bits a channel, too small. The result is cached, so later only new files are checked.
    `channels=3` converts grey and palette images to RGB, `channels=1` takes the luminance; transparent pixels become
    white; EXIF rotations are applied.

    Args:
        root: folder; subfolders are searched too.
        image_size: pixels along a side, after resizing the shorter side and cropping the centre.
        channels: 3 for RGB, 1 for grey.
        resize: "bicubic", or "box_bicubic" as ImageNet is prepared (`data/pixels.py`).
        class_folders: whether the first level of subfolders are the classes, numbered in sorted order: as text, or as
            numbers if all names are numbers (0, 1, .., 9, 10).
        test_share, min_size, on_bad, memory_mb, cache_dir, cache_gb: as `EncodedSource`.

    Raises:
        ValueError: an argument outside its range; bad files or empty class folders (from `check` and on loading).
        FileNotFoundError: no folder, or no images in it (from `check` and on loading).
    """

    content = "images"  # what root must contain
    cure = ""  # where to get it; starts with "; "
    within: tuple[str, ...] = ()  # folders of root to search; empty: all

    def __init__(
        self,
        root: ReadPath,
        image_size: int,
        channels: int = 3,
        resize: str = "bicubic",
        class_folders: bool = False,
        test_share: float = 0.1,
        min_size: int | None = None,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
        cache_gb: float = 16,
    ) -> None:
        square = Square(image_size, channels, resize)
        super().__init__(square, test_share, min_size, on_bad, memory_mb, cache_dir, cache_gb)
        self.root = Path(root).expanduser()
        self.name = self.root.name or "image_folder"
        self.class_folders = class_folders
        self._names: list[str] = []  # of the classes, once there are some
        self._known: list[str] = []  # the same in the order of an existing run

    @property
    def num_classes(self) -> int | None:
        """Number of class folders; None without them, or if `root` does not exist."""
        return (len(self._classes()) or None) if self.class_folders else None

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the class folders; None without them."""
        return self._classes() if self.class_folders else None

    def check(self) -> None:
        if self._good:
            return
        self._check_root()
        seen = scan(self.root, self.cache_dir, self.within)
        good = [seen[i] for i in self._usable(f"root={self.root}", seen)]
        self._check_enough(good)
        self._check_classes(good)
        self._ids = self._split(good)
        self._log_modes(self.root, good, len(seen))
        if self.class_folders and self._classes() != sorted(self._classes()):
            ordered = ", ".join(self._classes()[:12])
            log.info("%s: the classes are numbered in the order of their numbers: %s", self.root, ordered)
        self._good = good

    def listed(self, split: str) -> EncodedImages:
        self.check()
        seen = [self._good[i] for i in self._ids[split]]
        names = [file.name for file in seen]
        return EncodedImages(partial(_read, self.root), names, seen, self.square, self._labels(seen))

    def _split(self, good: list[Seen]) -> dict[str, list[int]]:
        """Numbers of the "train" and "test" images; neither is empty."""
        return random_split(len(good), self.test_share)

    def _check_root(self) -> None:
        if not self.root.is_dir():
            raise FileNotFoundError(
                f"root={self.root} must be a folder of {self.content}; there is none at {self.root.absolute()}"
                f"{self.cure}"
            )

    def _check_enough(self, good: list[Seen]) -> None:
        if len(good) < 2:
            raise FileNotFoundError(
                f"root={self.root} must hold at least 2 usable images (one to train, one to test); "
                f"{self.root.absolute()} has {len(good)}{self.cure}"
            )

    def _check_classes(self, good: list[Seen]) -> None:
        if not self.class_folders:
            return
        loose = [file.name for file in good if self._class_of(file.name) is None]
        if loose:
            raise ValueError(
                f"root={self.root} must hold images only inside its class folders, not {', '.join(loose[:8])}; "
                "move them or set class_folders=false, which leaves all images without a class"
            )
        empty = sorted(set(self._classes()) - {self._class_of(file.name) for file in good})
        if empty:
            raise ValueError(
                f"root={self.root} must hold a usable image in every class folder, {', '.join(empty[:8])} has none; "
                "remove it or set class_folders=false"
            )

    def _classes(self) -> list[str]:
        """Names of the class folders; the index in the list is the label."""
        if not self._names:
            names = subfolders(self._class_root)
            self._names = self._known if sorted(self._known) == names else in_number_order(names)
        return self._names

    @property
    def _class_root(self) -> Path:
        """The folder of the class folders."""
        return self.root

    def keep_order(self, classes: Sequence[str] | None) -> None:
        self._names, self._known = [], list(classes or ())

    def _class_of(self, name: str) -> str | None:
        """The class folder of the file `name`; None if it is in none."""
        return name.split("/")[0] if "/" in name else None

    def _labels(self, seen: Sequence[Seen]) -> Tensor | None:
        if not self.class_folders:
            return None
        number: dict[str | None, int] = {name: label for label, name in enumerate(self._classes())}
        return torch.tensor([number[self._class_of(file.name)] for file in seen])


def _read(root: Path, name: str) -> bytes:
    return (root / name).read_bytes()


def in_number_order(names: list[str]) -> list[str]:
    """The names in the order of their numbers if all of them are numbers, else as they are."""
    numbers = names and all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else names
