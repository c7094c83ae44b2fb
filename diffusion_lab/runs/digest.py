"""The columns of a finished run's metrics.jsonl as arrays, beside it: parsing its lines takes ten times as long.

    {"checksum": .., "columns": [[key, lines, numbers], ..]}      one line of JSON, then of each column
    steps int64 (lines,), images float64 (lines,), lengths int64 (lines,), values float64 (numbers,)

It is that of the lines whose checksum it has, so it is never older than they are, wherever the folder is copied; any
other is ignored and replaced. Nothing is lost with it, and where it cannot be written the lines are read each time.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.files import parse, write_whole
from diffusion_lab.files_inside import read_inside
from diffusion_lab.runs.curve import SCALAR, Column, columns
from diffusion_lab.runs.lines import rows_of
from diffusion_lab.runs.names import DIGEST, METRICS

SMALLEST = 2**14  # bytes of lines for which a second file is worth having
TYPES = ("steps", "images", "lengths", "values")


def read_columns(folder: Path, top: Path, finished: bool) -> dict[str, Column]:
    """The columns of a run's metrics.jsonl, {} without a regular file of that name.

    Args:
        folder: the run folder.
        top: the folder that the user named, below which no link is followed.
        finished: whether no more lines are to come, so that a digest is written.
    """
    try:
        content = read_inside(folder / METRICS, top)
    except OSError:
        return {}
    if len(content) < SMALLEST or not finished:
        return columns(rows_of(content))
    checksum = _checksum(content)
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _unpacked(read_inside(folder / DIGEST, top), checksum)
    found = columns(rows_of(content))
    with suppress(OSError):
        write_whole(folder / DIGEST, _packed(found, checksum))
    return found


def has_other_numbers(folder: Path) -> bool:
    """Whether a run has a digest with the checksum of its lines and other numbers, as anybody can make one."""
    try:
        content = read_inside(folder / METRICS, folder)
        checksum = _checksum(content)
        found = _unpacked(read_inside(folder / DIGEST, folder), checksum)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # no reader takes it
    return _packed(found, checksum) != _packed(columns(rows_of(content)), checksum)


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _packed(found: dict[str, Column], checksum: str) -> bytes:
    listed = [[key, len(column.steps), len(column.values)] for key, column in found.items()]
    head = json.dumps({"checksum": checksum, "columns": listed})
    parts = [getattr(column, name).tobytes() for column in found.values() for name in TYPES]
    return b"".join([head.encode(), b"\n", *parts])


def _unpacked(content: bytes, checksum: str) -> dict[str, Column]:
    """The columns.

    Raises:
        ValueError, KeyError, TypeError: they are not those of `checksum`, or the file is damaged.
    """
    line, _, rest = content.partition(b"\n")
    head: Any = parse(line.decode())
    if head["checksum"] != checksum:
        raise ValueError("it is that of other lines")
    found, place = {}, 0
    for key, lines, numbers in head["columns"]:
        column = Column()
        for name, count in zip(TYPES, (lines, lines, lines, numbers), strict=True):
            values: array[Any] = getattr(column, name)
            size = count * values.itemsize
            values.frombytes(rest[place : place + size])
            if len(values) != count:
                raise ValueError("it is cut off")
            place += size
        sizes = np.array(column.lengths)
        if type(key) is not str or (sizes < SCALAR).any() or np.where(sizes == SCALAR, 1, sizes).sum() != numbers:
            raise ValueError("it is no list of columns")
        found[key] = column
    if place != len(rest):
        raise ValueError("it has more than its columns")
    return found
