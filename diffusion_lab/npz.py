"""Reading .npz files from anybody: nothing in them is executed, and they take no more memory than they may."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection
from typing import BinaryIO

import numpy as np

from diffusion_lab.failure import Interruption

MOST = 2**28  # bytes of the arrays of a compressed file; those of one that is not compressed are as large as the file
_HEADER = 10_000  # bytes of an array's header, with which Python's parser of literals still copes


def unpack(content: bytes | BinaryIO, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, in memory.

    Args:
        content: of the file, or the opened file.
        names: the arrays that are read; None: all.

    Raises:
        ValueError: the file is damaged, these contain anything except arrays of numbers, or claim to hold more than
            the larger of the file's own size and `MOST` bytes.
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        with zipfile.ZipFile(file) as archive:
            members = [one for one in archive.infolist() if names is None or one.filename.removesuffix(".npy") in names]
            if sum(member.file_size for member in members) > max(file.seek(0, io.SEEK_END), MOST):
                raise ValueError("its arrays take more memory than any analysis")
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except (ValueError, Interruption):
        raise
    except Exception as error:  # zipfile and NumPy raise more than ten classes of errors for damaged files
        raise ValueError(f"not an .npz file: {error}") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """An array, whose header must not claim more than its member holds: NumPy would allocate it."""
    file = io.BytesIO(archive.read(member))
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file, max_header_size=_HEADER)
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds Python objects")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} claims more numbers than it holds")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False, max_header_size=_HEADER)
