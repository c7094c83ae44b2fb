"""Lists as curves over their coordinates, and which of a run's many curves are kept.

A run logs the same lists hundreds of times. Where each is a table of its own, as in W&B, those are kept whose step is
at least g times that of the last kept one, g = 1.1, and the last of the run. Of n logs at equal intervals these are at
most 2 + 1/(g - 1) + ln(n (g - 1))/ln g, which is 60 for n = 1000.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diffusion_lab.loggers.base import Axes
from diffusion_lab.runs.mirror import INDEX, VALUE

GROWTH = 1.1


class Curve(NamedTuple):
    """A list that was logged, the coordinates of its entries, and the step."""

    values: Sequence[float]
    axes: Axes
    step: int

    def table(self) -> tuple[list[Any], list[Any]]:
        """Columns, the coordinates and then `VALUE`, and a row for each entry that is a number."""
        axes = self.axes or {INDEX: range(len(self.values))}
        rows = [list(row) for row in zip(*axes.values(), self.values, strict=True)]
        return [*axes, VALUE], [row for row in rows if math.isfinite(row[-1])]


class Thinned:
    """Curves by key, of which few are kept."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}  # key -> step of the last kept curve
        self._waiting: dict[str, Curve] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def add(self, curves: Mapping[str, Curve]) -> dict[str, Curve]:
        """The curves of these that are kept now; the others wait, in place of earlier ones with their key."""
        now = {key: curve for key, curve in curves.items() if curve.step >= GROWTH * self._kept.get(key, 0)}
        self._kept |= {key: curve.step for key, curve in now.items()}
        self._waiting |= curves
        for key in now:
            del self._waiting[key]
        return now

    def rest(self) -> dict[str, Curve]:
        """The curves that wait at the end of the run."""
        rest, self._waiting = self._waiting, {}
        return rest
