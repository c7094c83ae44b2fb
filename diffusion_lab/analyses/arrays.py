"""Arrays as .npz files: equal arrays give equal bytes, and reading never executes code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.inside import read_inside
from diffusion_lab.npz import unpack

Arrays = Mapping[str, np.ndarray]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def is_arrays(value: Any) -> bool:
    """Whether a value is {name: array}, of numbers, texts or truth values."""
    if not isinstance(value, Mapping):
        return False
    try:
        kinds = [np.asarray(array).dtype for array in value.values()]
    except (TypeError, ValueError):  # a tensor on a GPU, a list of lists of several lengths
        return False
    return all(isinstance(name, str) for name in value) and not any(kind.hasobject for kind in kinds)


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


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays in a regular file; None if the file does not exist or contains anything else."""
    try:
        return unpack(read_inside(path, largest=None))
    except (OSError, ValueError):
        return None
