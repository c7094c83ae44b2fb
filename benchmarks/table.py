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


def place() -> str:
    """Where and with what."""
    return f"{hardware()}. {versions()}."


def heading(minutes: float) -> str:
    """The place, and how long all of it took."""
    return f"{place()} {minutes:.0f} minutes in all."


def section(result: Result) -> str:
    """One benchmark's rows in Markdown, under its title."""
    rows = [["what", "median [lowest, highest]", "goal", "reached"], ["---", "---:", "---:", "---"]]
    rows += [list(line.cells()) for line in result.lines]
    if result.error:
        rows.append(["failed", "", "", result.error.replace("|", "/").split("\n")[0]])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    when = f"{datetime.date.today()}, {result.seconds:.0f} s"
    return f"### {result.title}: `make bench ONLY={result.name}` ({when})\n\n{table}"


def write(text: str) -> None:
    """Put it between the two marks of the README."""
    before, _, after = _parts()
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def update(result: Result) -> bool:
    """Put one benchmark's section in the place of its old one, if the table there is of this place and has one."""
    head, *sections = _parts()[1].strip().split("\n\n### ")
    mark = f"`make bench ONLY={result.name}`"
    if not head.startswith(place()) or not any(mark in old for old in sections):
        return False
    new = section(result).removeprefix("### ")
    write("\n\n### ".join([head, *(new if mark in old else old for old in sections)]))
    return True


def _parts() -> tuple[str, str, str]:
    """Of the README: before the marks, between them, after them."""
    before, rest = README.read_text().split(BEGIN)
    between, after = rest.split(END)
    return before, between, after
