"""What the time goes into, where a goal is missed.

A profile is one file here. Its docstring says what is taken apart and how, its first sentence is the title, and

    def rows() -> Iterator[tuple[str, ...]]

gives the heading of its table and then its rows. Nothing else has to know of it: `python -m benchmarks.profiles` finds
the file.
"""

from __future__ import annotations

import importlib
import textwrap

from benchmarks.measured import files


def names() -> list[str]:
    """The files of this folder, in alphabetical order."""
    return files(__path__)


def section(name: str) -> str:
    """One profile in Markdown: what is taken apart, and the table."""
    module = importlib.import_module(f"benchmarks.profiles.{name}")
    title, _, text = (module.__doc__ or name).partition("\n")
    head, *rows = module.rows()
    rule = ("---", *["---:"] * (len(head) - 1))
    table = "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
    return f"## {title.rstrip('.')}: `make profile ONLY={name}`\n\n{textwrap.dedent(text).strip()}\n\n{table}"
