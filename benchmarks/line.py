"""What one benchmark says: a figure, and the goal that stands beside it.

A benchmark is one file in `lines/`. Its docstring says what is measured and how, its first sentence is the title in the
table, and

    def lines() -> Iterator[Line]

measures and gives a `Line` per figure. Nothing else has to know of it: `python -m benchmarks` finds the file.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.paired import Ratio


class Goal(NamedTuple):
    """A bound on the median.

    Args:
        bound: the number.
        least: whether the figure must be at least that; else at most.
    """

    bound: float
    least: bool

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.bound:g}"

    def met(self, value: float) -> bool:
        """Whether the figure, as it is printed with its two decimals, keeps the bound."""
        value = round(value, 2)
        return value >= self.bound if self.least else value <= self.bound


def at_least(bound: float) -> Goal:
    """The figure should be this or more."""
    return Goal(bound, True)


def at_most(bound: float) -> Goal:
    """The figure should be this or less."""
    return Goal(bound, False)


class Line(NamedTuple):
    """One row of the table.

    Args:
        what: is measured, over what, e.g. "bf16 step: diffusers' time over ours".
        value: median, lowest and highest over rounds.
        goal: what it should be; None where nothing is promised.
        unit: of the value; "" for a ratio.
        note: a few words on why, where the machine decides.
    """

    what: str
    value: Ratio
    goal: Goal | None = None
    unit: str = ""
    note: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        """What, figure, goal, and whether it is reached."""
        verdict = "" if self.goal is None else "yes" if self.goal.met(self.value.median) else "no"
        return (
            self.what,
            f"{self.value} {self.unit}".rstrip(),
            "" if self.goal is None else f"{self.goal} {self.unit}".rstrip(),
            ": ".join(part for part in (verdict, self.note) if part),
        )
