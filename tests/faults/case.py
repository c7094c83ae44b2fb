"""A case and its outcome."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TRACEBACK = "Traceback (most recent call last)"


@dataclass
class Outcome:
    """The outcome of one case, as plain values.

    Args:
        counts: e.g. {"kills": 3}, in the order of the table.
        differences: parts of a run that should be bitwise equal and are not.
        tracebacks: tracebacks in the output of programs, a line each.
        problems: other failures.
        seconds: duration.
    """

    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """All failures."""
        kinds = {"difference": self.differences, "traceback": self.tracebacks, "problem": self.problems}
        return [f"{kind}: {text}" for kind, texts in kinds.items() for text in texts]

    def expect(self, holds: bool, otherwise: str) -> bool:
        """Record a problem unless a condition holds; returns the condition."""
        if not holds:
            self.problems.append(otherwise)
        return holds

    def read(self, output: str) -> None:
        """Record a traceback in the output of a program."""
        if TRACEBACK in output:
            self.tracebacks.append(output[output.index(TRACEBACK) :].strip().splitlines()[-1][:300])

    def plain(self) -> dict[str, Any]:
        """As JSON values; the inverse is `Outcome(**plain)`."""
        return asdict(self)


class Case(NamedTuple):
    """One case: `work(folder)` runs in a separate process, in an empty folder, for at most `limit` seconds."""

    name: str
    work: Callable[[Path], Outcome]
    limit: float = 600.0

    @property
    def folder(self) -> str:
        """The name as a folder."""
        return slug(self.name)


def slug(name: str) -> str:
    """A folder name that needs no quotes on a command line."""
    return re.sub(r"[^\w.+-]+", "-", name)[:100].strip("-")


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """All outcomes as one, with the sums of the counts in the order in which they first appear."""
    whole, counts = Outcome(), Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.counts)
        whole.differences += outcome.differences
        whole.tracebacks += outcome.tracebacks
        whole.problems += outcome.problems
        whole.seconds += outcome.seconds
    whole.counts = dict(counts)
    return whole
