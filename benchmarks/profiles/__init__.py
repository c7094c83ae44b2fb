"""Profiles of the benchmarks that miss their goal.

A profile is one file here, which `python -m benchmarks.profiles` discovers. Its docstring describes the measurement,
its first sentence is the title, and

    def rows() -> Iterator[tuple[str, ...]]

yields the heading of its table and then its rows.
"""

from __future__ import annotations

import importlib
import textwrap

from benchmarks.measured import files


def names() -> list[str]:
    """The files of this folder, in alphabetical order."""
    return files(__path__)


def section(name: str) -> str:
    """One profile in Markdown: its description and its table."""
    module = importlib.import_module(f"benchmarks.profiles.{name}")
    title, _, text = (module.__doc__ or name).partition("\n")
    head, *rows = module.rows()
    rule = ("---", *["---:"] * (len(head) - 1))
    table = "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
    return f"## {title.rstrip('.')}: `make profile ONLY={name}`\n\n{textwrap.dedent(text).strip()}\n\n{table}"
