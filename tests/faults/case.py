"""What a part consists of, and what becomes of it."""

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
    """What one case gave, as plain values.

    Args:
        counts: how many of what there were, e.g. {"kills": 3}, in the order in which the table names them.
        differences: what is not equal to the bit although it must be.
        tracebacks: programs' outputs that show a traceback, a line each.
        problems: whatever else is not as it must be.
        seconds: how long it took, once it is known.
    """

    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """Everything that is not as it must be."""
        kinds = {"difference": self.differences, "traceback": self.tracebacks, "problem": self.problems}
        return [f"{kind}: {text}" for kind, texts in kinds.items() for text in texts]

    def expect(self, holds: bool, otherwise: str) -> bool:
        """Note a problem unless something holds; returns whether it does."""
        if not holds:
            self.problems.append(otherwise)
        return holds

    def read(self, output: str) -> None:
        """Note a traceback in what a program has printed."""
        if TRACEBACK in output:
            self.tracebacks.append(output[output.index(TRACEBACK) :].strip().splitlines()[-1][:300])

    def plain(self) -> dict[str, Any]:
        """As JSON holds it; `Outcome(**plain)` is the same again."""
        return asdict(self)


class Case(NamedTuple):
    """One case: `work(folder)` runs in a process of its own, in an empty folder, for at most `limit` seconds."""

    name: str
    work: Callable[[Path], Outcome]
    limit: float = 600.0

    @property
    def folder(self) -> str:
        """The name as a folder."""
        return slug(self.name)


def slug(name: str) -> str:
    """A name as a folder, which a command line may hold unquoted."""
    return re.sub(r"[^\w.+-]+", "-", name)[:100].strip("-")


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """All outcomes as one, counts added up in the order in which they first appear."""
    whole, counts = Outcome(), Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.counts)
        whole.differences += outcome.differences
        whole.tracebacks += outcome.tracebacks
        whole.problems += outcome.problems
        whole.seconds += outcome.seconds
    whole.counts = dict(counts)
    return whole
