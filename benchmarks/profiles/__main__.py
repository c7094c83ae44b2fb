"""Profiles: `make profile`, or `make profile ONLY=startup`.

Each profile runs in a new process with one thread. A full run is written to benchmarks/profiles/README.md; selected
profiles are printed. A profile adds overhead: it shows which part is large, and `make bench` the total time.
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
HEAD = """# Profiles

Written by `make profile`, one section per file of this folder. A profile adds overhead: it shows which part is large;
total times are in [the table of `make bench`](../README.md)."""


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
