"""Which heads starve in mixed predictions (experiments/mixed).

    python -m experiments.mixed_page RUNS    writes mixed/digits.heads.csv from finished runs

A head's share of the gates in a range of noise is that of its last 100 updates or so, as a run logs it
(`prediction/head_*`, `diffusion/mixed_prediction.py`).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from diffusion_lab.files import write_whole
from diffusion_lab.markup import csv_text
from diffusion_lab.reports import Run, read_runs, sections_of

VALUES = Path(__file__).resolve().parent / "mixed" / "digits.heads.csv"
HEADS = ("x0", "v", "eps")
COLUMNS = ("row", "seed", "head", "range", "share")
STARVES = 0.05


def collect(runs: Path) -> None:
    """Write the shares of all finished runs of several heads below a folder."""
    folder = read_runs(runs)
    done = [run for run in folder.runs if run.status == "done"]
    lines = [
        [group.label, run.seed, *shown]
        for section in sections_of(done, recorded=folder.questions)
        for group in section.groups
        for run in group.runs
        for shown in _shares(run)
    ]
    write_whole(VALUES, csv_text(COLUMNS, lines).encode())


def _shares(run: Run) -> Iterator[tuple[str, int, float]]:
    """Head, range and share of a run, of ranges that some row has reached."""
    for head in HEADS:
        last = run.curve(f"prediction/head_{head}").values[-1:]
        for k, share in enumerate(last[0] if len(last) else ()):
            if np.isfinite(share):
                yield head, k, float(share)


def shares() -> dict[str, dict[str, np.ndarray]]:
    """Row -> head -> mean over seeds of its share in each range (ranges,)."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            of_head = found.setdefault(line["row"], {}).setdefault(line["head"], {})
            of_head.setdefault(int(line["range"]), []).append(float(line["share"]))
    return {
        row: {head: np.array([np.mean(own[k]) for k in sorted(own)]) for head, own in heads.items()}
        for row, heads in found.items()
    }


def starvation() -> str:
    """The table: mean share of each head over the ranges, and in how many of them it starves."""
    titles = [text for head in HEADS for text in (head, "starves in")]
    lines = [f"| row | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}"]
    for row, heads in shares().items():
        cells = []
        for head in HEADS:
            mean, there = heads[head].mean(), heads[head]
            text = f"{100 * mean:.0f} %"
            cells += [f"**{text}**" if mean < STARVES else text, f"{(there < STARVES).sum()} of {len(there)}"]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    collect(Path(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
