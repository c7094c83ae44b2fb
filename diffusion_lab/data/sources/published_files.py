"""Files of published data sets: their download with torchvision, and the IDX format of MNIST and its relatives.

    bytes 0, 1   zero
    byte 2       type of the numbers; 0x08 = unsigned byte, the only one that image files use
    byte 3       n, the number of dimensions
    then         n big-endian uint32: the dimensions
    then         the numbers, last dimension fastest

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "file formats".
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from diffusion_lab.cache_folder import cache_folder, one_at_a_time


def fetch(name: str, root: Path, is_there: Callable[[], bool]) -> None:
    """Download torchvision's data set `name` into `root`, unless `is_there` says that it is; torchvision checks the md5
    of the files.

    Of several jobs one downloads, into a folder beside the files, which appear in `root` when they are whole.

    Raises:
        FileNotFoundError: there is no network, or the server does not answer as expected.
    """
    from torchvision import datasets  # here, because the import takes two seconds and is needed once per machine

    lock = cache_folder() / f"download-{hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]}-{name}"
    try:
        with one_at_a_time(lock):
            if is_there():
                return
            root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".download-", dir=root) as place:
                getattr(datasets, name)(place, download=True)
                for file in sorted(path for path in Path(place).rglob("*") if path.is_file()):
                    target = root / file.relative_to(place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    file.replace(target)
    except (OSError, RuntimeError) as error:
        raise FileNotFoundError(
            f"root={root} must be filled, but {name} cannot be downloaded ({error}); fetch the files on a machine "
            "with network and put them there"
        ) from error


def idx_shape(path: Path) -> tuple[int, ...]:
    """Dimensions in the header of an IDX file, gzipped or not.

    Raises:
        ValueError: the file is not an IDX file of unsigned bytes.
    """
    with _open(path) as file:
        return _header(path, file)


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of an IDX file, gzipped or not, which is detected from its first bytes.

    Raises:
        ValueError: the file is not an IDX file of unsigned bytes, or is truncated or damaged.
    """
    with _open(path) as file:
        shape = _header(path, file)
        try:
            data = file.read()
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is cut off or damaged ({error})") from error
    if len(data) != math.prod(shape):
        raise ValueError(f"{path} has {len(data)} bytes of data where its header says {math.prod(shape)}")
    return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape)


def _open(path: Path) -> BufferedIOBase:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")


def _header(path: Path, file: BufferedIOBase) -> tuple[int, ...]:
    try:
        zero, kind, dimensions = struct.unpack(">HBB", file.read(4))
        if zero or kind != 8:
            raise ValueError(f"{path} is not an IDX file of unsigned bytes")
        return struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    except (struct.error, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is cut off or damaged ({error})") from error
