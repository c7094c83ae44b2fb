"""The table of `make bench`, and its place in benchmarks/README.md."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Protocol

from benchmarks.line import Line
from benchmarks.machine import hardware, versions

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"


class Result(Protocol):
    """What one benchmark gave."""

    name: str
    title: str
    lines: list[Line]
    seconds: float
    error: str


def heading(minutes: float) -> str:
    """When, where and with what."""
    return f"{datetime.date.today()}, {hardware()}. {versions()}. {minutes:.0f} minutes in all."


def section(result: Result) -> str:
    """One benchmark's rows in Markdown, under its title."""
    rows = [["what", "median [lowest, highest]", "goal", "reached"], ["---", "---:", "---:", "---"]]
    rows += [list(line.cells()) for line in result.lines]
    if result.error:
        rows.append(["failed", "", "", result.error.replace("|", "/").split("\n")[0]])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"### {result.title}: `make bench ONLY={result.name}` ({result.seconds:.0f} s)\n\n{table}"


def write(text: str) -> None:
    """Put it between the two marks of the README."""
    before, rest = README.read_text().split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
