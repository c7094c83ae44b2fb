"""Arrays as the bytes of an .npz file: equal arrays give equal bytes, and nothing in it is ever executed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def pack(arrays: Arrays) -> bytes:
    """An .npz file without a clock in it.

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
    """The arrays of an .npz file, all of them in memory.

    Raises:
        ValueError: it is damaged, or holds anything but arrays of numbers.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise ValueError(f"no .npz file: {error}") from error


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays in a file; None if there is no such file, or something else in it."""
    try:
        return unpack(path.read_bytes())
    except (OSError, ValueError):
        return None
