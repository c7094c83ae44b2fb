"""What a table measures: one number for each cell of an entry.

A measure is one Python file, and the node `measure` of a table's yaml names it with its arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diffusion_lab.runs.run import Run
from diffusion_lab.tables.table import Column, Row

# (name of an analysis, its runs, further words of its command line) -> its facts and its arrays by name
Analyse = Callable[[str, Sequence[Run], Sequence[str]], tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass(frozen=True)
class Entry:
    """A row in a column for one seed, trained.

    Args:
        row, column, seed: which.
        runs: one finished run for each model of the row.
        start: the run from whose weights they started; None: new weights.
        steps: optimizer steps of the cells at this scale.
        analyse: computes an analysis of runs, or reads it if it was computed before.
    """

    row: Row
    column: Column
    seed: int
    runs: tuple[Run, ...]
    start: Run | None
    steps: tuple[int, ...]
    analyse: Analyse


class Measured(NamedTuple):
    """The numbers of an entry.

    Attributes:
        quantity: its name, which differs where two numbers cannot be compared, e.g. fd1k_digits.
        values: one for each cell; None where there is none.
        protocol: how it was measured, plain values.
    """

    quantity: str
    values: Sequence[float | None]
    protocol: Mapping[str, Any] = {}


class Measure(ABC):
    """A measure.

    Attributes:
        better: lower or higher; "" if neither is better.
    """

    better: str = "lower"

    @abstractmethod
    def __call__(self, entry: Entry) -> Measured:
        """The numbers of an entry."""
