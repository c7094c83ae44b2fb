"""Arrays as .npz files: equal arrays give equal bytes, and reading never executes code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def pack(arrays: Arrays) -> bytes:
    """The bytes of an .npz file without timestamps.

    Raises:
        ValueError: an array holds Python objects.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", EPOCH), content.getvalue())
    return buffer.getvalue()


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, in memory.

    Raises:
        ValueError: the file is damaged, or contains anything except arrays of numbers.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise ValueError(f"not an .npz file: {error}") from error


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays in a file; None if the file does not exist or contains anything else."""
    try:
        return unpack(path.read_bytes())
    except (OSError, ValueError):
        return None
