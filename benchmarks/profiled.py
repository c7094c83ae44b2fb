"""One profile as a section of text."""

from __future__ import annotations

import importlib
import textwrap

import benchmarks.profiles
from benchmarks.chosen import files


def names() -> list[str]:
    """The files of `profiles/`, in alphabetical order."""
    return files(benchmarks.profiles)


def section(name: str) -> str:
    """One profile in Markdown: what is taken apart, and the table."""
    module = importlib.import_module(f"benchmarks.profiles.{name}")
    title, _, text = (module.__doc__ or name).partition("\n")
    head, *rows = module.rows()
    rule = ("---", *["---:"] * (len(head) - 1))
    table = "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
    return f"## {title.rstrip('.')}: `make profile ONLY={name}`\n\n{textwrap.dedent(text).strip()}\n\n{table}"
