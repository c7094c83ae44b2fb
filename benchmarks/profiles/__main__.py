"""What the time goes into: `make profile`, or `make profile ONLY=startup`.

Each profile runs in a fresh process of its own with one thread. All of them together are written to
benchmarks/profiles/README.md; some of them are printed. A profile costs time itself: it says which part is large, and
`make bench` how long the whole takes.
"""

from __future__ import annotations

import datetime
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.measured import chosen
from benchmarks.profiles import names, section
from benchmarks.table import place

README = Path(__file__).resolve().parent / "README.md"
HEAD = """# What the time goes into

Written by `make profile`, one section per file of this folder. A profile costs time itself: it says which part is
large; how long the whole takes stands in [the table of `make bench`](../README.md)."""


def main() -> None:
    only = chosen("benchmarks.profiles", __doc__ or "", names())
    sections = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        for text in processes.map(section, only or names()):
            print(text, end="\n\n", flush=True)
            sections.append(text)
    if not only:
        README.write_text("\n\n".join([HEAD, f"{datetime.date.today()}. {place()}", *sections]) + "\n")
        print("written to benchmarks/profiles/README.md")


if __name__ == "__main__":
    main()
