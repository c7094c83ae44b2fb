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
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.pixels import Square
from diffusion_lab.data.sources.encoded_images import EncodedImages, EncodedSource, random_split
from diffusion_lab.data.sources.scan import scan_rows
from diffusion_lab.data.sources.walk import counted, reason
from diffusion_lab.failure import Interruption

LABELS = "dataset.json"
MOST_BYTES = {False: 64 * 2**20, True: 512 * 2**20}  # of an image, of LABELS: a zip bomb is refused unread
ENCRYPTED = 1  # bit of a member's flags
log = logging.getLogger(__name__)


class Archive:
    """Reads members of a zip archive, in threads and in forked or spawned processes.

    Attributes:
        images: name -> member, sorted by name; other files, hidden ones and folders are left out.
        left_out: reason -> number of files that are left out, without LABELS.

    Raises:
        ValueError: it is not a zip archive, or two images have one name.
        FileNotFoundError: there is none.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(
                f"path={path} must be a zip archive of images, such as EDM's dataset_tool.py writes; there is none at "
                f"{path.absolute()}"
            )
        self.path, self._open = path, (0, None)
        try:
            members = self._zip().infolist()
        except Exception as error:  # as in `read`
            raise ValueError(f"path={path} must be a zip archive, and it is not: {error}; make it again") from None
        files = [member for member in members if not member.is_dir()]
        images = [member for member in files if not reason(member.filename)]
        self.left_out = Counter(why for file in files if file.filename != LABELS and (why := reason(file.filename)))
        twice = [name for name, n in Counter(member.filename for member in images).items() if n > 1]
        if twice:
            raise ValueError(f"path={path} must hold every name once, not {twice[0]} twice; make it again")
        self.images = {member.filename: member for member in sorted(images, key=lambda m: m.filename.split("/"))}

    def read(self, name: str) -> bytes:
        """The content of a member.

        Raises:
            KeyError: there is none.
            ValueError: it is encrypted, damaged, or larger than any image.
        """
        archive = self._zip()
        if name not in archive.NameToInfo:
            raise KeyError(name)
        member = archive.NameToInfo[name]
        most = MOST_BYTES[name == LABELS]
        if member.flag_bits & ENCRYPTED:
            raise ValueError("encrypted")
        if member.file_size > most:  # zipfile reads no more than the stated size
            raise ValueError(f"{member.file_size} bytes unpacked, more than {most}")
        try:
            return archive.read(member)
        except Interruption:
            raise
        except Exception as error:  # zipfile and what it unpacks with raise more than ten classes of errors
            raise ValueError(str(error)) from None

    def _zip(self) -> ZipFile:
        # Forked processes would share the position in an open file.
        if self._open[0] != os.getpid():
            self._open = (os.getpid(), ZipFile(self.path))
        return self._open[1]  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": (0, None)}


class ZipFolder(EncodedSource):
    """The images of a zip archive, as (channels, image_size, image_size) uint8.

    Every image is checked before training, as those of `ImageFolder`. Images of EDM's tool have the right size already;
    others are resized and cropped (`data/pixels.py`).
    Differs from EDM: it trains on all images, here `test_share` of them are held out, because validation needs them.

    Args:
        path: the archive, which is read without being unpacked.
        image_size: pixels along a side, after resizing the shorter side and cropping the centre.
        channels: 3 for RGB, 1 for grey.
        resize: "bicubic", or "box_bicubic" as ImageNet is prepared (`data/pixels.py`).
        labels: whether the classes are read from dataset.json.
        test_share, min_size, on_bad, memory_mb, cache_dir, cache_gb: as `EncodedSource`.

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
        cache_gb: float = 16,
    ) -> None:
        square = Square(image_size, channels, resize)
        super().__init__(square, test_share, min_size, on_bad, memory_mb, cache_dir, cache_gb)
        self.path = Path(path).expanduser()
        self.name = self.path.stem or "zip_folder"
        self.labels = labels
        self._archive: Archive | None = None
        self._classes: list[int] | None = None

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
        good = self._usable(f"path={self.path}", seen)
        if len(good) < 2:
            raise FileNotFoundError(
                f"path={self.path} must hold at least 2 usable images (one to train, one to test); it has {len(good)}; "
                "make it with EDM's dataset_tool.py, or zip a folder of images"
            )
        self._good = [seen[i] for i in good]
        self._classes = [known[i] for i in good] if self.labels else None
        if archive.left_out:
            log.info("%s: left out: %s", self.path, counted(archive.left_out))
        self._log_modes(self.path, self._good, len(seen))
        self._ids = random_split(len(good), self.test_share)

    def listed(self, split: str) -> EncodedImages:
        self.check()
        ids = self._ids[split]
        labels = None if self._classes is None else torch.tensor([self._classes[i] for i in ids])
        seen = [self._good[i] for i in ids]
        return EncodedImages(self._opened().read, [one.name for one in seen], seen, self.square, labels)

    def _opened(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self.path)
        return self._archive

    def _labels(self) -> list[int]:
        """The class of each image, in the order of the archive's images."""
        archive, listed = self._opened(), []
        try:
            listed = json.loads(archive.read(LABELS))["labels"]
            of = {name.replace("\\", "/"): label for name, label in listed}
        except KeyError as error:
            raise self._unlabelled(f"there is no {error}") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self._unlabelled("it is null" if listed is None else "it cannot be read") from None
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
