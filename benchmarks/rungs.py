"""What a race could save by ending runs early: `python -m benchmarks.rungs` writes rungs.md.

A race (`diffusion_lab/racing.py`) trains every run to its end. A rung at a share r of the training would end the last
run of a method that is about to leave there, if the metric at r told what it will be at the end.

**Drift.** All pairs of rows of a table of `experiments/archive` with three common seeds and at least five values of a
Fréchet distance, all of digits: d_s(r) is the difference of their logarithms with seed s at r (the last value until
then, or the mean of those until then), d_s = d_s(1). Seeds: standard deviation of d_s over seeds, which a race averages
away. Drift: that of d_s(r) - d_s, which one more seed adds to it at a rung. Common: its mean over seeds, which no
number of seeds averages away. All three are roots of means of squares over the pairs. Same sign: share of pairs whose
mean over seeds has the same sign at r and at the end.

**Cost.** Trainings of a race over K x 5, and what they would be if each method that leaves did so at r of its last run,
in every case rightly: no rule can save more.
"""

from __future__ import annotations

import datetime
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.races import FIXED, ROWS, of_digits, of_studies, raced
from diffusion_lab.intervals import ESTIMANDS, Estimand
from diffusion_lab.verdicts import MARGIN
from experiments.archive import curves

PAGE = Path(__file__).resolve().parent / "rungs.md"
RUNGS = (0.2, 0.4, 0.6, 0.8)  # nearly all curves have five values
SEEDS, VALUES = 3, 5  # fewest


def pairs() -> Iterator[np.ndarray]:
    """Of two rows of a table, the differences of the logarithms (seeds, values)."""
    tables: dict[tuple[str, str, str], dict[str, dict[int, np.ndarray]]] = {}
    for curve in curves():
        if curve.metric.startswith("fd") and len(curve.values) >= VALUES:
            table = tables.setdefault((curve.study, curve.table, curve.metric), {})
            table.setdefault(curve.row, {})[curve.seed] = np.log(curve.values)
    for table in tables.values():
        for one, other in itertools.combinations(table.values(), 2):
            seeds = sorted(one.keys() & other.keys())
            if len(seeds) >= SEEDS:
                yield np.stack([one[seed] - other[seed] for seed in seeds])


def at(share: float, differences: np.ndarray, estimand: Estimand) -> np.ndarray:
    """What the values until a share of the training say, (seeds,)."""
    until = differences[:, : max(1, round(share * differences.shape[1]))]
    return until[:, -1] if estimand == "end" else until.mean(1)


def drift(estimand: Estimand, share: float) -> str:
    """A line of the table of drifts."""
    found = [(at(share, one, estimand), at(1.0, one, estimand)) for one in pairs()]
    seeds = [end.var(ddof=1) for _, end in found]
    apart = [(early - end).var(ddof=1) for early, end in found]
    common = [(early - end).mean() ** 2 for early, end in found]
    same = np.mean([early.mean() * end.mean() > 0 for early, end in found])
    roots = " | ".join(f"{np.sqrt(np.mean(one)):.3f}" for one in (seeds, apart, common))
    return f"| {ESTIMANDS[estimand]} | {share} | {len(found)} | {roots} | {same:.2f} |"


def cost(name: str, y: np.ndarray) -> str:
    """A line of the table of costs, of races (races, K, N)."""
    rows, ended = y.shape[1], [raced(one, MARGIN) for one in y]
    trainings = np.mean([one.trainings for one in ended])
    left = np.mean([sum(word != "in" for word in one.words) for one in ended])
    costs = [(trainings - (1 - share) * left) / (rows * FIXED) for share in (1.0, *RUNGS[::-1])]
    return f"| {name} | {rows} | {' | '.join(f'{one:.2f}' for one in costs)} |"


def lines() -> Iterator[str]:
    """The tables."""
    yield "| estimand | r | pairs | seeds | drift | common | same sign |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    yield from (drift(estimand, share) for estimand in ESTIMANDS for share in RUNGS)
    yield f"\n| values | K | cost | {' | '.join(f'at {share}' for share in RUNGS[::-1])} |"
    yield f"|---|---:|---:|{'---:|' * len(RUNGS)}"
    for rows in ROWS:
        yield cost("digits", of_digits(np.random.default_rng([rows, FIXED]), rows, FIXED, False).y)
        yield cost("all studies", of_studies(np.random.default_rng(rows), rows).y)


def main() -> int:
    said = (__doc__ or "").split("\n\n", 1)
    made = f"`python -m benchmarks.rungs`, {datetime.date.today()}, NumPy {np.__version__}.\n"
    text = "\n".join(["# What a race could save by ending runs early\n", made, f"{said[1].strip()}\n", *lines()]) + "\n"
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
