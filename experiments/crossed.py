"""The crossed study: which part explains the result, what a sampler gains on each schedule, and whether what is trained
on, seen on ln SNR, predicts the result.

A cell is (schedule, prediction, sampler, weighting). The result is y = ln of the Fréchet distance at the end, a value
for each cell and seed; differences of y are logarithms of ratios.

Variance explained (`shares`): in a full cross with factors A, B, C and S seeds, means y_ab.. over what is left out,

    SS_A = sum (y_a... - y_....)^2,   SS_AB = sum (y_ab.. - y_a... - y_.b.. + y_....)^2,   ...

the sums over all values; they add up to the total sum of squares, so each is a share of it. The rest is the seeds'.

Gain of a sampler on a schedule (`gains`): the ratio to uniform of the mean over the predictions, same seed. The
samplers of a schedule are decided together (`diffusion_lab.verdicts.judge`), but for learned_beta: with the x0
prediction some of its seeds fail, and a row that varies far more than the others would widen all intervals. It is
decided by itself.

Prediction from ln SNR alone (`predicted`): the y of a schedule's cell is estimated from the cells of the other
schedules with the same prediction, as a mean with weights exp(-d^2/2 h^2), d the total variation between their
allocations. No schedule takes part in its own estimate; h is that which leaves the least error inside the others.
"""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diffusion_lab.verdicts import Verdict, judge

FOLDER = Path(__file__).resolve().parent / "schedule_by_sampler"
EDGES = np.linspace(-12, 12, 25)  # bins of ln SNR, of one nat; what lies beyond is in the outer ones
ALONE = ("learned_beta",)  # samplers that are decided by themselves
WIDTHS = np.linspace(0.02, 0.6, 30)  # h that are tried


class Cell(NamedTuple):
    """One combination of the study."""

    schedule: str
    prediction: str
    sampler: str
    weighting: str


Values = dict[Cell, dict[int, float]]  # cell -> seed -> Fréchet distance


def values_of(path: Path, step: int | None = None) -> Values:
    """The values at a step, by default the last one of each run."""
    found: dict[Cell, dict[int, tuple[int, float]]] = defaultdict(dict)
    with open(path, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            at, seed = int(line["step"]), int(line["seed"])
            cell = Cell(*(line[name] for name in Cell._fields))
            if (step is None and at >= found[cell].get(seed, (0, 0.0))[0]) or at == step:
                found[cell][seed] = (at, float(line["value"]))
    return {cell: {seed: value for seed, (_, value) in own.items()} for cell, own in found.items() if own}


def allocations_of(path: Path) -> dict[Cell, np.ndarray]:
    """Share of the objective in each bin of ln SNR, mean over the seeds: cell -> (bins,)."""
    found: dict[Cell, list[np.ndarray]] = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in itertools.islice(csv.reader(file), 1, None):
            found[Cell(*row[:4])].append(np.array(row[5:], dtype=float))
    return {cell: np.mean(own, 0) for cell, own in found.items()}


def own_prediction(cell: Cell) -> str:
    """eps, x0, or "own" for the third one, with which those who use the schedule train: v, velocity or F."""
    return cell.prediction if cell.prediction in ("eps", "x0") else "own"


def shares(y: np.ndarray, factors: Sequence[str]) -> dict[str, float]:
    """Share of the sum of squares of each factor, interaction and the seeds: y (levels of each factor.., seeds)."""
    axes, total = range(len(factors)), float(((y - y.mean()) ** 2).sum())
    effects: dict[tuple[int, ...], np.ndarray] = {}
    found = {}
    for size in range(len(factors) + 1):
        for kept in itertools.combinations(axes, size):
            mean = y.mean(axis=tuple(set(range(y.ndim)) - set(kept)), keepdims=True)
            effects[kept] = mean - sum(effects[less] for less in effects if set(less) < set(kept))
            if kept:
                words = " x ".join(factors[axis] for axis in kept)
                found[words] = float(np.broadcast_to(effects[kept] ** 2, y.shape).sum()) / total
    return {**found, "seeds": 1.0 - float(sum(found.values()))}


def cross(values: Values, weighting: str = "unit") -> tuple[np.ndarray, tuple[list[str], list[str], list[str]]]:
    """y (schedules, predictions, samplers, seeds) of the full cross with a weighting, and the names of its levels.

    Raises:
        ValueError: a cell or a seed of it is missing.
    """
    chosen = {cell: own for cell, own in values.items() if cell.weighting == weighting}
    cells = {(cell.schedule, own_prediction(cell), cell.sampler): own for cell, own in chosen.items()}
    names = tuple(list(dict.fromkeys(key[i] for key in cells)) for i in range(3))
    seeds = sorted(set.intersection(*(set(own) for own in cells.values())))
    missing = [key for key in itertools.product(*names) if key not in cells]
    if missing or not seeds:
        raise ValueError(f"cell={missing[:1] or 'all'} must have a value for each seed; the sweep is not finished")
    y = [[[[np.log(cells[a, b, c][seed]) for seed in seeds] for c in names[2]] for b in names[1]] for a in names[0]]
    return np.array(y), names  # type: ignore[return-value]


def gains(
    y: np.ndarray, names: tuple[list[str], list[str], list[str]], baseline: str = "uniform"
) -> dict[tuple[str, str], Verdict]:
    """(schedule, sampler) -> its verdict against the baseline."""
    schedules, _, samplers = names
    found = {}
    for schedule, of in zip(schedules, np.exp(y.mean(1)), strict=True):  # (samplers, seeds)
        rows = {sampler: dict(enumerate(own.tolist())) for sampler, own in zip(samplers, of, strict=True)}
        together = [name for name in samplers if name not in (baseline, *ALONE)]
        for family in (together, *([name] for name in ALONE if name in rows)):
            judged = judge([rows[baseline], *(rows[name] for name in family)], "ratio", rising=False)
            found |= {(schedule, name): one for name, one in zip(family, judged[1:], strict=True) if one}
    return {(a, c): found[a, c] for a in schedules for c in samplers if c != baseline}


def predicted(values: Values, allocations: Mapping[Cell, np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[Cell]]:
    """Mean y of each cell with an allocation, its estimate from the cells of the other schedules, and the cells."""
    cells = [cell for cell in values if cell in allocations]
    y = np.array([np.mean(np.log(list(values[cell].values()))) for cell in cells])
    of = np.array([allocations[cell] for cell in cells])
    distance = np.abs(of[:, None] - of[None]).sum(2) / 2
    same = np.array([[own_prediction(a) == own_prediction(b) for b in cells] for a in cells])
    other = np.array([[a.schedule != b.schedule for b in cells] for a in cells])
    estimate = np.empty(len(cells))
    for schedule in {cell.schedule for cell in cells}:
        held = np.array([cell.schedule == schedule for cell in cells])
        inner = same & other & ~held[None]  # neither its own schedule nor the one that is held out
        errors = [((y - _mean(distance, inner, y, h))[~held] ** 2).sum() for h in WIDTHS]
        estimate[held] = _mean(distance, same & other, y, WIDTHS[int(np.argmin(errors))])[held]
    return y, estimate, cells


def explained(y: np.ndarray, estimate: np.ndarray) -> float:
    """R^2 = 1 - sum (y - estimate)^2 / sum (y - mean)^2; below 0 where the mean of all would be closer."""
    return 1 - float(((y - estimate) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def _mean(distance: np.ndarray, allowed: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    """Weighted mean of y over the allowed cells of each row: (n,)."""
    logits = np.where(allowed, -(distance**2) / (2 * width**2), -np.inf)
    weight = np.exp(logits - logits.max(1, keepdims=True))
    return weight @ y / weight.sum(1)
