"""Seconds as a function of the step, from the lines of timing.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.runs.curve import curve


class Clock(NamedTuple):
    """The time at which steps were done.

    Fields:
        steps: (n,) int64, increasing, > 0.
        seconds: (n,) float64, not decreasing.
    """

    steps: np.ndarray
    seconds: np.ndarray

    def at(self, steps: np.ndarray) -> np.ndarray:
        """(m,) seconds at steps (m,): interpolated linearly from 0 at step 0; after the last line at the mean rate."""
        between = np.interp(steps, np.append(0, self.steps), np.append(0.0, self.seconds))
        return between + np.maximum(steps - self.steps[-1], 0) * self.seconds[-1] / self.steps[-1]


def clock(rows: Sequence[dict[str, Any]], key: str) -> Clock | None:
    """The clock that is recorded under `key`; None unless the last row has it."""
    if not rows or key not in rows[-1]:
        return None
    points = curve(rows, key, batch=1)
    used = (points.steps > 0) & np.isfinite(points.values) if points.values.ndim == 1 else np.zeros(0, bool)
    if not used.any():
        return None
    return Clock(points.steps[used], np.maximum.accumulate(points.values[used]))
