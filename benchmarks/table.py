"""The results of benchmarks with their goals, as the table of `make bench` in benchmarks/README.md.

A benchmark is one file in `lines/`, which `python -m benchmarks` discovers. Its docstring describes the measurement,
its first sentence is the title in the table, and

    def lines() -> Iterator[Line]

measures and yields a `Line` per figure.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.paired import Ratio
from diffusion_lab.cli.bfloat16 import has_bfloat16, has_matrix_units
from diffusion_lab.versions import versions as versions_of

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"
LIBRARIES = ("torch", "lightning", "hydra-core", "diffusers", "torchvision", "torch-fidelity")


class Goal(NamedTuple):
    """A bound on the median.

    Args:
        bound: the number.
        least: whether the bound is a minimum, else a maximum.
    """

    bound: float
    least: bool

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.bound:g}"

    def met(self, value: float) -> bool:
        """Whether the value, rounded to two decimals as it is printed, meets the bound."""
        value = round(value, 2)
        return value >= self.bound if self.least else value <= self.bound


def at_least(bound: float) -> Goal:
    """A minimum."""
    return Goal(bound, True)


def at_most(bound: float) -> Goal:
    """A maximum."""
    return Goal(bound, False)


class Line(NamedTuple):
    """One row of the table.

    Args:
        what: the quantity and its reference, e.g. "bf16 step: diffusers' time over ours".
        value: median, minimum and maximum over rounds.
        goal: None without one.
        unit: of the value; "" for a ratio.
        note: a few words of explanation, for a result that depends on the machine.
    """

    what: str
    value: Ratio
    goal: Goal | None = None
    unit: str = ""
    note: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        """Quantity, value, goal, and whether it is reached."""
        verdict = "" if self.goal is None else "yes" if self.goal.met(self.value.median) else "no"
        return (
            self.what,
            f"{self.value} {self.unit}".rstrip(),
            "" if self.goal is None else f"{self.goal} {self.unit}".rstrip(),
            ": ".join(part for part in (verdict, self.note) if part),
        )


def bfloat16_line(what: str, value: Ratio, goal: Goal, note: str = "") -> Line:
    """A row in bfloat16, whose goal only a processor with matrix units can reach; elsewhere the goal is in the note."""
    if has_matrix_units():
        return Line(what, value, goal, note=note)
    lack = "no bfloat16 matrix units here" if has_bfloat16() else "bfloat16 is emulated here"
    return Line(what, value, note="; ".join(part for part in (note, f"{lack}, where they are {goal}") if part))


class Benchmark(NamedTuple):
    """The results of one file of `lines/`."""

    name: str
    title: str
    lines: list[Line]
    seconds: float
    error: str = ""


def hardware() -> str:
    """Processor, cores, memory and bfloat16 support in one line."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    units = "bfloat16 matrix units" if has_matrix_units() else "bfloat16 instructions without matrix units"
    bf16 = units if has_bfloat16() else "no bfloat16 instructions"
    return f"{len(os.sched_getaffinity(0))} cores of {_processor()}, {gigabytes:.0f} GiB, {bf16}"


def versions() -> str:
    """Versions of Python and of the compared libraries, of which some are optional, in one line."""
    found = {"Python": platform.python_version()} | versions_of(*LIBRARIES)
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _processor() -> str:
    path = Path("/proc/cpuinfo")  # Linux's
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def place() -> str:
    """Hardware and versions."""
    return f"{hardware()}. {versions()}."


def heading(minutes: float) -> str:
    """Hardware, versions and the total time."""
    return f"{place()} {minutes:.0f} minutes in all."


def section(result: Benchmark) -> str:
    """One benchmark's rows in Markdown, under its title."""
    rows = [["what", "median [lowest, highest]", "goal", "reached"], ["---", "---:", "---:", "---"]]
    rows += [list(line.cells()) for line in result.lines]
    if result.error:
        rows.append(["failed", "", "", result.error.replace("|", "/").split("\n")[0]])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    when = f"{datetime.date.today()}, {result.seconds:.0f} s"
    return f"### {result.title}: `make bench ONLY={result.name}` ({when})\n\n{table}"


def write(text: str) -> None:
    """Write it between the two marks in the README."""
    before, _, after = _parts()
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def update(result: Benchmark) -> bool:
    """Replace or add the section of one benchmark, in alphabetical order of their files, if the README's table is of
    the same hardware and versions."""
    head, *old = _parts()[1].strip().split("\n\n### ")
    if not head.startswith(place()):
        return False
    sections = {re.findall(r"ONLY=(\w+)`", text)[0]: text for text in old}
    sections[result.name] = section(result).removeprefix("### ")
    write("\n\n### ".join([head, *(sections[name] for name in sorted(sections))]))
    return True


def _parts() -> tuple[str, str, str]:
    """The README before the marks, between them and after them."""
    before, rest = README.read_text().split(BEGIN)
    between, after = rest.split(END)
    return before, between, after
