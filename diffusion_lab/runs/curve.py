"""The values of a logged key over training, from the lines that a run has written so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

LARGEST = 1e100  # of a number; the square of a larger one may overflow
MOST = 2**53  # steps or images; more are no count, and fit no integer of NumPy


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


def curve(rows: Iterable[dict[str, Any]], key: str, batch: int) -> Curve:
    """The values of `key`, by step; if two lines have the same step, the later one is used.

    Args:
        rows: lines of metrics.jsonl or timing.jsonl.
        key: logged key; rows whose list has another length than the last one are left out.
        batch: images per step, for rows without "images".
    """
    points = {row["step"]: row for row in rows if key in row and _usable(row[key])}
    steps = sorted(points)
    values = [_array(points[step][key]) for step in steps]
    if values:
        kept = [i for i, value in enumerate(values) if value.shape == values[-1].shape]
        steps, values = [steps[i] for i in kept], [values[i] for i in kept]
    images = [min(finite(points[step].get("images")) or step * batch, MOST) for step in steps]
    return Curve(np.array(steps, np.int64), np.array(images, np.int64), np.array(values, np.float64))


def finite(value: Any) -> float | None:
    """The number as a float, or None if it is missing, not finite, or beyond any measurement."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return float(value)


def _array(value: Any) -> np.ndarray:
    array = np.array(value, np.float64)
    array[np.abs(array) >= LARGEST] = math.inf
    return array


def _usable(value: Any) -> bool:
    """Whether it is a number or a list of them; null is one that was not finite."""
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(v is None or _is_number(v) for v in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
