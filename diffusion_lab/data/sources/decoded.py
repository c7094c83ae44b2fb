"""Decoded images in the folder of caches: memory-mapped files, which all processes of a machine share.

    decoded/KEY.u8         N C S S bytes, the pixels (N,C,S,S) in uint8; then their record with its CRC-32, in JSON
    decoded/KEY.partial    the file while it is written
    decoded/KEY.held       the lock of the process that writes it

KEY is a hash of the record: the fingerprint of the encoded images and their conversion, the shape, and what decodes
them, because another version may round otherwise. So a folder, an archive and a table of the same images share a file.
Who opens a file holds a shared lock on it, and it is not removed to make room for another one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import os
import platform
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import __version__ as pillow
from PIL import features

from diffusion_lab.cache_folder import one_at_a_time
from diffusion_lab.files import parse, replacing
from diffusion_lab.files_inside import regular

log = logging.getLogger(__name__)
FORMAT = 1  # of the file
BLOCK = 2**22  # bytes read at a time
LONGEST = 4096  # bytes of a record
SUFFIX, PARTIAL = ".u8", ".partial"


class NotKept(Exception):
    """Why decoded images are not in the folder of caches."""


class Decoded:
    """The decoded images of one set in the folder of caches.

    Args:
        cache_dir: the folder of caches.
        cache_gb: most that all files of decoded images may take, in units of 2^30 bytes.
        fingerprint: of the encoded images and their conversion.
        shape: (N,C,S,S).
    """

    def __init__(self, cache_dir: Path, cache_gb: float, fingerprint: str, shape: Sequence[int]) -> None:
        self.folder, self.cache_gb, self.shape = cache_dir / "decoded", cache_gb, tuple(shape)
        self.size = math.prod(shape)
        by = f"Pillow {pillow}, JPEG {features.version('jpg')}, {platform.machine()}"
        self.record = {"format": FORMAT, "fingerprint": fingerprint, "shape": list(shape), "by": by}
        key = hashlib.sha256(json.dumps(self.record).encode()).hexdigest()[:16]
        self.path = self.folder / f"{key}{SUFFIX}"

    def images(self, decode: Callable[[], Iterable[np.ndarray]]) -> np.ndarray | None:
        """(N,C,S,S) uint8, memory-mapped, decoded now if they are not there; None, with a line in the log, if they
        cannot be kept. Writing into the array changes this process's copy of a page alone.

        Args:
            decode: begins to decode the images, in their order. An exception is raised here, but for an OSError.
        """
        with suppress(OSError, NotKept):  # said below, by the one process that writes the file anew
            return self._open()
        try:
            with one_at_a_time(self.path):
                try:
                    return self._open()
                except FileNotFoundError:
                    pass
                except NotKept as damage:
                    log.warning("%s %s: the images are decoded again", self.path, damage)
                    self.path.unlink()
                self._make_room()
                self._write(decode())
                return self._open()
        except (OSError, NotKept) as why:
            log.warning("decoded images are not kept for the next start: %s", why)
            return None

    def _open(self) -> np.ndarray:
        """The array of an undamaged file.

        Raises:
            FileNotFoundError: there is none.
            NotKept: it is damaged.
        """
        with open(self.path, "rb", opener=regular) as file:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            checksum = _checksum(file, self.size)
            try:
                said = parse(file.read(LONGEST).decode())
            except ValueError:
                said = None
            if said != self.record | {"crc32": checksum}:
                raise NotKept("is damaged, or of another version")
            with suppress(OSError):  # another user's
                os.utime(file.fileno())  # the file that was used last is removed last
            # The map has a descriptor of its own of the open file, so the lock ends with the map.
            return np.memmap(file, np.uint8, "c", 0, self.shape)

    def _make_room(self) -> None:
        """Remove the files that were used least recently, as many as are in the way.

        Raises:
            NotKept: there is no room for the new file even so.
        """
        free, limit = shutil.disk_usage(self.folder).free, self.cache_gb * 2**30
        if self.size > limit:
            raise NotKept(f"they take {_gb(self.size)} GB, more than cache_gb={self.cache_gb:g}")
        kept = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process removes files as well
                kept += [(path, path.stat())] if path.suffix in (SUFFIX, PARTIAL) else []
        total = sum(status.st_size for _, status in kept)
        for path, status in sorted(kept, key=lambda one: one[1].st_mtime):
            if total + self.size > limit and _removed(path):
                total, free = total - status.st_size, free + status.st_size
        if total + self.size > limit:
            raise NotKept(f"runs use {_gb(total)} GB of cache_gb={self.cache_gb:g}, and they take {_gb(self.size)} GB")
        if 2 * self.size > free:  # the run needs some for its checkpoints
            raise NotKept(f"they take {_gb(self.size)} GB of the {_gb(free)} GB that are free at {self.folder}")

    def _write(self, images: Iterable[np.ndarray]) -> None:
        checksum = 0
        with replacing(self.path, beside=f"{self.path.stem}{PARTIAL}") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            for image in images:
                checksum = zlib.crc32(image.data, checksum)
                file.write(image.data)
            file.write(json.dumps(self.record | {"crc32": checksum}).encode())
        log.info("%s GB of decoded images are kept in %s for the next start", _gb(self.size), self.path)


def _checksum(file: BinaryIO, size: int) -> int:
    """CRC-32 of the first `size` bytes, by reading: a map of a file that cannot be read would end the process."""
    checksum, block = 0, memoryview(bytearray(min(BLOCK, size)))
    while size > 0:
        count = file.readinto(block[: min(BLOCK, size)])  # type: ignore[attr-defined]
        if not count:
            raise NotKept("ends early")
        checksum, size = zlib.crc32(block[:count], checksum), size - count
    return checksum


def _removed(path: Path) -> bool:
    """Whether it could be removed: nobody has it open, and it may be."""
    with suppress(OSError), open(path, "r+b", opener=regular) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


def _gb(size: float) -> str:
    return f"{size / 2**30:.3g}"
