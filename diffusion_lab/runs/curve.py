"""The values of logged keys over training, from the lines that a run has written so far.

A run of a million steps has thousands of lines with a hundred numbers each; as Python's objects they would take eight
times the memory of the numbers. Lines are therefore read one after the other into a column per key.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

LARGEST = 1e100  # of a number; the square of a larger one may overflow
MOST = 2**53  # steps or images; more are no count, and fit no integer of NumPy
SCALAR = -1  # length of a value that is no list
_NUMBERS = {int, float, type(None)}  # classes of values; null is a number that was not finite


class Curve(NamedTuple):
    """The values of one logged key over training.

    Fields:
        steps: (n,) int64, optimizer steps, increasing.
        images: (n,) int64, training images seen.
        values: (n,) float64, or (n, bins) for a key that holds a list; NaN where nothing was measured.
    """

    steps: np.ndarray
    images: np.ndarray
    values: np.ndarray


@dataclass
class Column:
    """The values of one key in the order of their lines, without those that are no numbers.

    Attributes:
        steps: of each line.
        images: of each line; NaN for one without.
        lengths: of the list of each line; `SCALAR` for a number.
        values: the numbers of all lines one after the other.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    images: array[float] = field(default_factory=lambda: array("d"))
    lengths: array[int] = field(default_factory=lambda: array("l"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, images: float, value: Any) -> None:
        """Add what a line has, unless it is neither a number nor a list of them."""
        numbers = value if type(value) is list else [value]
        kinds = set(map(type, numbers))
        if not numbers or not kinds <= _NUMBERS:
            return
        self.steps.append(step)
        self.images.append(images)
        self.lengths.append(len(numbers) if type(value) is list else SCALAR)
        self.values.extend([math.nan if one is None else one for one in numbers] if type(None) in kinds else numbers)

    def curve(self, batch: int) -> Curve:
        """The values by step; of two lines with one step the later one is used, and lines whose list has another length
        than the last one are left out.

        Args:
            batch: images per step, for lines without "images".
        """
        steps, lengths = np.array(self.steps, np.int64), np.array(self.lengths, np.int64)
        _, last = np.unique(steps[::-1], return_index=True)
        kept = len(steps) - 1 - last
        kept = kept[lengths[kept] == lengths[kept[-1]]] if len(kept) else kept
        seen = np.array(self.images, np.float64)[kept]
        seen = np.where(np.isnan(seen) | (seen == 0), steps[kept].astype(np.float64) * batch, seen)
        sizes = np.where(lengths == SCALAR, 1, lengths)
        begin = (np.cumsum(sizes) - sizes)[kept]
        values = np.array(self.values, np.float64)
        if not len(kept) or lengths[kept[-1]] == SCALAR:
            values = values[begin]
        else:
            values = values[begin[:, None] + np.arange(int(lengths[kept[-1]]))]
        values[np.abs(values) >= LARGEST] = math.inf
        return Curve(steps[kept], np.minimum(seen, MOST).astype(np.int64), values)


def columns(rows: Iterable[dict[str, Any]]) -> dict[str, Column]:
    """Key -> its column, in the order in which they were first logged, of lines of metrics.jsonl or timing.jsonl."""
    found: dict[str, Column] = {}
    for row in rows:
        step, images = row["step"], finite(row.get("images"))
        for key, value in row.items():
            if (column := found.get(key)) is None:
                column = found[key] = Column()
            column.add(step, math.nan if images is None else images, value)
    return found


def finite(value: Any) -> float | None:
    """The number as a float, or None if it is missing, not finite, or beyond any measurement."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return float(value)
