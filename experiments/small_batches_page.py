"""What the study of small batches says of its committed values (experiments/small_batches).

A ratio of two rows has for each seed s ln r_bs at the batch sizes b, and ln c_ns after n steps of batches of 64. Of it

    mean      of ln r_bs over b
    slope     of ln r_bs on log2 b, by least squares
    control   slope of ln c_ns on log2 n
    excess    slope + control: at equal images a doubled batch has half the steps

each with Student's interval over the seeds at 1 - 0.05/5.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import Interval, mean_interval
from experiments.study_along import files_of
from experiments.study_cells import rows

FOLDER = Path(__file__).resolve().parent / "small_batches"
METRIC, BATCH, AT = "fd2k_digits", 64, 400  # metric, batch of the control, and its steps in the main part
UNMIXED = "equal_loss_slots stratify=false"
RATIOS = (
    ("mixing", "stratified", "uniform"),
    ("mixing", "equal_loss_slots", UNMIXED),
    ("distribution", UNMIXED, "uniform"),
    ("distribution", "logit_normal", "uniform"),
    ("distribution", "infonoise", "uniform"),
)
LEVEL = 1 - 0.05 / len(RATIOS)
Table = dict[str, dict[int, float]]


class Found(NamedTuple):
    """Of one ratio, in logarithms."""

    mean: Interval
    slope: Interval
    control: Interval
    excess: Interval


def tables() -> tuple[dict[int, Table], dict[int, Table]]:
    """Row -> seed -> distance, by batch size, and by steps at batches of 64."""
    batches, steps = (
        {value: rows(path, METRIC) for value, path in files_of(FOLDER / name).items()} for name in ("digits", "steps")
    )
    return batches, {**steps, AT: batches[BATCH]}


def ratio(row: str, base: str, batches: dict[int, Table], steps: dict[int, Table]) -> Found:
    """Of two rows, over the seeds that all tables have of both."""
    every = [table[name] for table in (*batches.values(), *steps.values()) for name in (row, base)]
    seeds = sorted(set.intersection(*(set(one) for one in every)))
    logs, control = (
        np.array([[math.log(table[row][seed] / table[base][seed]) for seed in seeds] for table in of.values()])
        for of in (batches, steps)
    )
    slope, beside = (_slopes(list(of), own) for of, own in ((batches, logs), (steps, control)))
    return Found(*(mean_interval(each.tolist(), LEVEL) for each in (logs.mean(0), slope, beside, slope + beside)))


def _slopes(values: list[int], logs: np.ndarray) -> np.ndarray:
    """Of (values, seeds) on log2 of the values: (seeds,)."""
    x = np.log2(values) - np.log2(values).mean()
    return x @ logs / (x**2).sum()


def table() -> str:
    """The ratios, and their factors per doubling."""
    batches, steps = tables()
    lines = ["| part | ratio | seeds | mean over batches | per doubling of the batch | of the steps | excess |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for part, row, base in RATIOS:
        found = ratio(row, base, batches, steps)
        lines.append(f"| {part} | `{row}` / `{base}` | {found.mean.n} | {' | '.join(map(_words, found))} |")
    return "\n".join(lines)


def rates() -> str:
    """Geometric means over the seeds by batch size and learning rate; bold: the least, whose rate the batch has."""

    def means(path: Path) -> dict[float, float]:
        return {
            float(label.rpartition("=")[2]): geometric_mean(own.values()) for label, own in rows(path, METRIC).items()
        }

    found = {batch: means(path) for batch, path in files_of(FOLDER / "lr").items()}
    every = sorted({rate for own in found.values() for rate in own})
    lines = [f"| batch | {' | '.join(f'{rate:g}' for rate in every)} |", f"| {'---: | ' * (len(every) + 1)}".rstrip()]
    for batch, own in found.items():
        texts = {rate: f"**{mean:.2f}**" if mean == min(own.values()) else f"{mean:.2f}" for rate, mean in own.items()}
        lines.append(f"| {batch} | {' | '.join(texts.get(rate, '') for rate in every)} |")
    return "\n".join(lines)


def _words(found: Interval) -> str:
    if found.low is None or found.high is None:
        return f"{math.exp(found.mean):.2f}"
    return f"{math.exp(found.mean):.2f} [{math.exp(found.low):.2f}, {math.exp(found.high):.2f}]"


PARTS = {"table": table, "rates": rates}
