"""The values of the study of objective and variance (experiments/objective), and what is computed from them.

y[o, d, s] is the logarithm of the Fréchet distance of objective o, division d of it between draws and weights, and seed
s, at one batch size; M[o, d] the second moment of a row's gradient, which o and d have with the gradients measured once
(`objective/split.py`). The v-objective is uniform, so its `p` is its `w`: that cell is not trained, and NaN here.

    slope     of y on ln M within objectives, by least squares for each seed; Student's interval of the seeds' mean
    shares    of the sum of squares of the 19 cells' means over seeds: between objectives (4 degrees of freedom), and
              between the divisions of one objective (14), each less what the seeds' deviations add to it
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from omegaconf import OmegaConf

from diffusion_lab.diffusion import cosine
from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.verdicts import Verdict, judge
from experiments.objective.split import OBJECTIVES, SPLITS, Split
from experiments.study_cells import rows

FOLDER = Path(__file__).resolve().parent / "objective"
METRIC, HELD_OUT = "fd2k_digits", "test_fd2k_digits"
BATCHES, SEEDS = (16, 64, 256), 8
SAME = ("v", "p")  # is ("v", "w")
RATE = 0.02  # of batches of 64
LEVEL = 1 - 0.05 / len(BATCHES)  # Bonferroni: one slope for each batch size
STEPS = torch.arange(1000)


class Shares(NamedTuple):
    """Of the sum of squares of the cells' means without noise: between objectives, and its interval over seeds; and of
    that sum with noise, the noise."""

    objectives: float
    interval: Interval
    noise: float


def measured() -> list[int]:
    """Batch sizes with all seeds; nothing is said of others."""
    there = (batch for batch in BATCHES if (FOLDER / f"digits_{batch}.per_seed.csv").is_file())
    return [batch for batch in there if len(_values(batch)[0]) >= SEEDS]


def values(batch: int, metric: str = METRIC) -> np.ndarray:
    """y (objectives, divisions, seeds) of the seeds that all cells have."""
    return _values(batch, metric)[1]


def _values(batch: int, metric: str = METRIC) -> tuple[list[int], np.ndarray]:
    """These seeds, and y.

    Raises:
        ValueError: a row of the file is no cell, or a cell has no row.
    """
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for row, own in rows(FOLDER / f"digits_{batch}.per_seed.csv", metric).items():
        found = re.search(r"objective=(\w+) split=(\w+)", row)
        if not found:
            raise ValueError(f"row={row} must name objective and split; gather all cells together")
        cells[found[1], found[2]] = {seed: math.log(value) for seed, value in own.items()}
    cells[SAME] = dict.fromkeys(cells.get(("v", "w"), {}), math.nan)
    if missing := {(one, split) for one in OBJECTIVES for split in SPLITS} - cells.keys():
        raise ValueError(f"digits_{batch}.per_seed.csv must have all cells, and has none of {sorted(missing)}")
    seeds = sorted(set.intersection(*(set(own) for own in cells.values())))
    return seeds, np.array([[[cells[one, split][seed] for seed in seeds] for split in SPLITS] for one in OBJECTIVES])


@cache
def second_moments() -> np.ndarray:
    """ln M (objectives, divisions), less that of the division with all in the weights."""
    return _of_divisions(lambda one: one.second_moment)


@cache
def spreads() -> np.ndarray:
    """ln of sum_t q_t^2 / p_t likewise, of the squared weight of a draw."""
    return _of_divisions(lambda one: float((one.probabilities(0) * one.weight(STEPS, 0).double() ** 2).sum()))


def _of_divisions(number: Callable[[Split], float]) -> np.ndarray:
    cfg = OmegaConf.load(FOLDER / "sampler" / "split.yaml")
    measured = (list(cfg.timesteps), list(cfg.gradients))
    made = [[Split(cosine(len(STEPS)), one, split, *measured) for split in SPLITS] for one in OBJECTIVES]
    logs = np.log([[number(one) for one in row] for row in made])
    logs[OBJECTIVES.index(SAME[0]), SPLITS.index(SAME[1])] = math.nan
    return logs - logs[:, :1]


def slope(batch: int, without: str = "") -> Interval:
    """Of y on ln M within objectives, also without a division; its interval holds for all batch sizes together."""
    return mean_interval(_slopes(batch, without).tolist(), LEVEL)


def fall() -> Interval:
    """Of the slope from the smallest to the largest batch, at 95 %, over their common seeds."""
    first, last = (dict(zip(_values(batch)[0], _slopes(batch), strict=True)) for batch in (BATCHES[0], BATCHES[-1]))
    return mean_interval([float(first[seed] - last[seed]) for seed in first if seed in last])


def _slopes(batch: int, without: str = "") -> np.ndarray:
    kept = [k for k, split in enumerate(SPLITS) if split != without]
    return slopes(values(batch)[:, kept], second_moments()[:, kept])


def slopes(y: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """One for each seed: (objectives, divisions, seeds), (objectives, divisions) -> (seeds,)."""
    x = moments - np.nanmean(moments, 1, keepdims=True)
    return np.nansum(x[:, :, None] * y, (0, 1)) / np.nansum(x**2)


def explained(y: np.ndarray, x: np.ndarray) -> float:
    """Of (objectives, divisions) both: the share of the sum of squares of y within objectives that a line on x has."""
    y, x = (one - np.nanmean(one, 1, keepdims=True) for one in (y, x))
    return float(np.nansum(x * y) ** 2 / (np.nansum(x**2) * np.nansum(y**2)))


def shares(y: np.ndarray) -> Shares:
    """Of (objectives, divisions, seeds), with the jackknife's interval over seeds.

    What the noise adds to a sum of squares of means over S seeds is that of the seeds' deviations, over S (S - 1): one
    number for both parts would be too small between objectives, on which a seed acts as a whole.
    """

    def part(of: np.ndarray) -> tuple[float, float]:
        seeds, mean = of.shape[2], of.mean(2, keepdims=True)
        whole, noise = _squares(mean), _squares(of - mean) / (seeds * (seeds - 1))
        between, within = whole - noise
        return float(between / (between + within)), float(noise.sum() / whole.sum())

    share, noise = part(y)
    n = y.shape[2]
    found = mean_interval([n * share - (n - 1) * part(np.delete(y, k, 2))[0] for k in range(n)])
    return Shares(found.mean, found, noise)  # as a ratio of two sums with noise is biased


def _squares(y: np.ndarray) -> np.ndarray:
    """Sums over cells and seeds: of objectives' means to the mean of all, and of divisions to their objective's."""
    counts = (~np.isnan(y[:, :, 0])).sum(1)
    own = np.nanmean(y, 1)
    between = (counts[:, None] * (own - np.nanmean(y, (0, 1))) ** 2).sum()
    return np.array([between, np.nansum((y - own[:, None]) ** 2)])


def verdicts(batch: int) -> list[list[Verdict | None]]:
    """Of each objective its divisions, decided together against all in the weights."""
    found = []
    for own in values(batch):
        there = [k for k, row in enumerate(own) if not np.isnan(row).any()]
        judged = judge([dict(enumerate(np.exp(own[k]))) for k in there], "ratio", rising=False)
        found.append([judged[there.index(k)] if k in there else None for k in range(len(SPLITS))])
    return found


def of_objectives(batch: int) -> tuple[int, list[Verdict | None]]:
    """The objective with the lowest geometric mean of its four divisions, `p` of v being its `w`, and the others
    against it, paired by seed and decided together."""
    own = values(batch)
    means = np.where(np.isnan(own), own[:, :1], own).mean(1)
    lowest = int(means.mean(1).argmin())
    order = [lowest, *(k for k in range(len(OBJECTIVES)) if k != lowest)]
    judged = judge([dict(enumerate(np.exp(means[k]))) for k in order], "ratio", rising=False)
    return lowest, [judged[order.index(k)] for k in range(len(OBJECTIVES))]


def means() -> dict[str, list[float]]:
    """What was looked at afterwards -> its ratio of each seed; "mean" is that of the four objectives that have both."""
    found = {}
    for batch in measured():
        w, p, _, inverted = np.moveaxis(values(batch), 1, 0)
        held_out = values(batch, HELD_OUT)
        own = {
            "drawn / weighted, mean": np.nanmean(p - w, 0),
            "drawn / weighted, mean, to held-out images": np.nanmean(held_out[:, 1] - held_out[:, 0], 0),
            "`inverted` / weighted, mean": np.mean((inverted - w)[1:], 0),
            "min_snr drawn / v": p[2] - w[0],
            "min_snr weighted / v": w[2] - w[0],
        }
        found |= {f"batches of {batch}: {name}": np.exp(one).tolist() for name, one in own.items()}
    rates = own_rates()
    best = (rates[split, best_rate(split, rates)] for split in ("p", "w"))
    both = [math.exp(p - w) for p, w in zip(*best, strict=True)]
    return found | {"batches of 64: min_snr drawn / weighted, each at its best learning rate": both}


def own_rates() -> dict[tuple[str, float], list[float]]:
    """Division of min_snr's objective and learning rate -> y at batches of 64, of the seeds that all have."""
    tables = {RATE: rows(FOLDER / "digits_64.per_seed.csv", METRIC)}
    for path in FOLDER.glob("rates_*.per_seed.csv"):
        tables[float(path.name.removesuffix(".per_seed.csv").partition("_")[2])] = rows(path, METRIC)
    cells = {
        (split, rate): own
        for rate, table in sorted(tables.items())
        for row, own in table.items()
        for split in ("w", "p")
        if row.endswith(f"split={split}") and ("objective=" not in row or "objective=min_snr" in row)
    }
    seeds = sorted(set.intersection(*(set(own) for own in cells.values())))
    return {cell: [math.log(own[seed]) for seed in seeds] for cell, own in cells.items()}


def best_rate(split: str, found: dict[tuple[str, float], list[float]]) -> float:
    """Of the cells of `own_rates`, that with the lowest geometric mean for a division."""
    return min((rate for own, rate in found if own == split), key=lambda rate: fmean(found[split, rate]))
