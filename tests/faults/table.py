"""The table of the campaign, and its place in docs/faults.md."""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

from tests.faults.case import Outcome
from tests.faults.kept import ROOT

PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- make faults writes from here -->", "<!-- to here -->"
HEAD = ["part", "what", "how many", "differences", "tracebacks", "other faults", "time"]


class Row(NamedTuple):
    """One part of the campaign."""

    name: str
    title: str
    outcome: Outcome

    def cells(self) -> list[str]:
        """Part, title, counts, numbers of differences, tracebacks and other problems, total time of its cases."""
        counts = ", ".join(f"{count:,} {what}" for what, count in self.outcome.counts.items() if count)
        kinds = (self.outcome.differences, self.outcome.tracebacks, self.outcome.problems)
        wrong = [str(len(texts)) for texts in kinds]
        return [f"`{self.name}`", self.title, counts, *wrong, f"{self.outcome.seconds / 60:.1f} min"]

    def line(self) -> str:
        """The row on a terminal."""
        cells = self.cells()
        named = [f"{cell} {name}" for cell, name in zip(cells[3:6], HEAD[3:6], strict=True)]
        return f"{cells[1]}: {cells[2]}; {', '.join(named)}; {cells[6]}"


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    lines = [HEAD, ["---", "---", "---", "---:", "---:", "---:", "---:"], *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(rows: Sequence[Row]) -> None:
    """Write the table between the two marks of the page, with date, commit and versions."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{place()}\n\n{table(rows)}\n\n{END}{after}")


def place() -> str:
    """Date, commit and versions; one line."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "lightning", "hydra-core"))
    return f"{datetime.date.today()}, commit {commit}, Python {platform.python_version()}, {libraries}."
