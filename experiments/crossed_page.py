"""The parts of the crossed study's page that follow from its committed values:
`<!-- cells: part crossed_page PART DATA -->`.

All values are Fréchet distances, averaged and compared as logarithms: a mean is a geometric mean, a difference of two
cells is a ratio, and 0.7 [0.6, 0.8] reads "0.7 times the other's, 95 % interval over seeds from 0.6 to 0.8". Tables
with bold cells have intervals that hold for many cells at once; any other interval is Student's of that cell alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import Verdict, judge_alone
from experiments.crossed import (
    FOLDER,
    Cell,
    Values,
    allocations_of,
    cross,
    explained,
    gains,
    own_prediction,
    predicted,
    shares,
    values_of,
)

DEFAULT = Cell("linear", "eps", "uniform", "unit")  # the papers' default
FIRST_SEEDS = range(5)  # those that the best cell is chosen on; the others confirm it
FACTORS = ("schedule", "prediction", "sampler")
OWN_PREDICTIONS = "v, velocity or EDM's F"  # by schedule


def values(data: str) -> Values:
    """The values of a data set at the end of training."""
    return values_of(FOLDER / f"{data}.values.csv")


def first(found: Values) -> Values:
    """The values of the seeds on which cells are chosen."""
    chosen = {cell: {seed: own[seed] for seed in FIRST_SEEDS if seed in own} for cell, own in found.items()}
    return {cell: own for cell, own in chosen.items() if own}


def ranked(found: Values) -> list[Cell]:
    """Cells from the lowest mean logarithm to the highest."""
    return sorted(found, key=lambda cell: _logs(found[cell]).mean())


def ratio(found: Values, cell: Cell, other: Cell, seeds: Sequence[int] | range | None = None) -> Interval:
    """Interval of ln cell - ln other over the seeds that both have."""
    return mean_interval([math.log(one) for one in ratios(found, cell, other, seeds)])


def ratios(found: Values, cell: Cell, other: Cell, seeds: Sequence[int] | range | None = None) -> list[float]:
    """cell over other, of the seeds that both have."""
    common = sorted(set(found[cell]) & set(found[other]) & set(found[cell] if seeds is None else seeds))
    return [found[cell][seed] / found[other][seed] for seed in common]


def title(cell: Cell) -> str:
    """`cosine, v, logit_normal`, and the weighting if it is not the unit one."""
    return ", ".join([*cell[:3], *([cell.weighting] if cell.weighting != "unit" else [])])


def shown(interval: Interval) -> str:
    """exp of mean and ends: `0.70 [0.61, 0.80]`."""
    mean = f"{math.exp(interval.mean):.2f}"
    if interval.low is None or interval.high is None:
        return f"{mean} (n = 1)"
    return f"{mean} [{math.exp(interval.low):.2f}, {math.exp(interval.high):.2f}]"


def answers(data: str) -> str:
    """The study in five sentences."""
    everything = values(data)
    found = first(everything)
    y, names = cross(found)
    best, unit = ranked(found)[0], sum(cell.weighting == "unit" for cell in found)
    beside = ratio(found, best, DEFAULT)
    share = shares(y, FACTORS)
    together = share["schedule x sampler"] + share["schedule x prediction x sampler"]
    means, estimate, _ = predicted(found, allocations_of(FOLDER / f"{data}.allocations.csv"))
    lines = [
        f"**Best**: of {len(found)} cells, {unit} of them with unit weighting, `{title(best)}` is lowest, "
        f"{_of(found, best)}; the papers' `{title(DEFAULT)}` has {_of(found, DEFAULT)}, and the best cell has "
        f"{shown(beside)} times that{_confirmed(everything, best)}.",
        f"**What matters**: of the variance of the logarithm, schedule explains {share['schedule']:.0%}, prediction "
        f"{share['prediction']:.0%} and sampler {share['sampler']:.0%} by themselves, prediction and sampler together "
        f"another {share['prediction x sampler']:.0%}, schedule and sampler {together:.0%} "
        f"({share['schedule x prediction x sampler']:.1%} of it only with the prediction), and "
        f"{share['seeds']:.0%} is left to the seeds.",
        f"**Samplers**, in the mean over the predictions: {_best_samplers(y, names)}. What each gains with each "
        "prediction is on its [option page](../../docs/options/sampler/README.md).",
        f"**Weighting**: {weighting_sentence(found)}.",
        f"**ln SNR alone**: the density of the objective on ln SNR predicts {explained(means, estimate):.0%} of the "
        "variance of cells on a schedule that the estimate has not seen (below 0: worse than their mean).",
    ]
    return "\n".join(f"- {line}" for line in lines)


def variance(data: str) -> str:
    """A table of the shares of variance, the largest first."""
    y, _ = cross(first(values(data)))
    found = sorted(shares(y, FACTORS).items(), key=lambda item: -item[1])
    return table(["part", "share of the variance"], [[name, f"{share:.1%}"] for name, share in found])


def samplers(data: str) -> str:
    """A table of every sampler's ratio to uniform on every schedule, mean over the predictions."""
    y, names = cross(first(values(data)))
    found = gains(y, names)
    rows = []
    for sampler in (name for name in names[2] if name != "uniform"):
        cells = [found[schedule, sampler] for schedule in names[0]]
        rows.append([f"`{sampler}`", *map(decided, cells)])
    return table(["sampler", *names[0]], rows)


def weightings(data: str) -> str:
    """A table of min_snr's ratio to the unit weighting, for each cell that has both with all seeds."""
    found = first(values(data))
    pairs = _weighted(found)
    judged = judge_alone([ratios(found, cell, cell._replace(weighting="unit")) for cell in pairs], "ratio")
    rows = [
        [f"`{title(cell)}`", _of(found, cell), decided(one)]
        for cell, one in zip(pairs, judged, strict=True)
        if one is not None
    ]
    return table(["cell", "Fréchet distance", "ratio to unit weighting"], rows)


def every(data: str) -> str:
    """A table of all cells from the best on: mean, interval, ratio to the papers' default."""
    found = values(data)
    rows = []
    for place, cell in enumerate(ranked(first(found)), 1):
        own = first(found)
        rows.append(
            [str(place), f"`{title(cell)}`", str(len(own[cell])), _of(own, cell), shown(ratio(own, cell, DEFAULT))]
        )
    return table(["", "cell", "n", "Fréchet distance", f"ratio to {title(DEFAULT)}"], rows)


def agreement(data: str) -> str:
    """How far the order of the cells on digits is their order on another data set: Spearman's rank correlation.

    Over all cells that both have, and over those alone that are below the papers' default on digits, because a few
    cells that fail everywhere make any order look alike.
    """
    one, other = first(values("digits")), first(values(data))
    both = [cell for cell in ranked(one) if cell in other]
    better = both[: both.index(DEFAULT)]
    kept = sum(_logs(other[cell]).mean() < _logs(other[DEFAULT]).mean() for cell in better)
    return (
        f"Spearman's rank correlation with digits: {_rank_correlation(one, other, both)} over {len(both)} cells, "
        f"and {_rank_correlation(one, other, better)} over the {len(better)} that are below the papers' default on "
        f"digits; {kept} of those are below it here."
    )


def _rank_correlation(one: Values, other: Values, cells: list[Cell]) -> str:
    means = np.array([[_logs(found[cell]).mean() for cell in cells] for found in (one, other)])
    ranks = rankdata(means, axis=1) - (len(cells) + 1) / 2
    return f"{(ranks[0] * ranks[1]).sum() / np.sqrt((ranks**2).sum(1).prod()):.2f}".replace("-", "\N{MINUS SIGN}")


PARTS = {part.__name__: part for part in (answers, variance, samplers, weightings, every, agreement)}


def _logs(own: dict[int, float]) -> np.ndarray:
    return np.log(list(own.values()))


def _of(found: Values, cell: Cell) -> str:
    return shown(mean_interval(_logs(found[cell]).tolist()))


def decided(found: Verdict) -> str:
    """`**0.70 [0.61, 0.80]**`, bold where the interval excludes 1; "=" before one that is equal within 10 %."""
    text = " ".join(ratio_words(found))
    return f"**{text}**" if found.decided else f"= {text}" if found.word == "equal" else text


def _confirmed(found: Values, best: Cell) -> str:
    later = [seed for seed in found[best] if seed not in FIRST_SEEDS and seed in found.get(DEFAULT, {})]
    return f" ({shown(ratio(found, best, DEFAULT, later))} on {len(later)} other seeds)" if later else ""


def _best_samplers(y: np.ndarray, names: tuple[list[str], list[str], list[str]]) -> str:
    found = gains(y, names)
    words = []
    for schedule in names[0]:
        own = {sampler: found[schedule, sampler] for sampler in names[2] if sampler != "uniform"}
        best = min(own, key=lambda sampler: own[sampler].size)
        said = " ".join(ratio_words(own[best])) + ("" if own[best].decided else ", not decided")
        words.append(f"on {schedule} `{best}` gains most over uniform, {said}")
    return "; ".join(words)


def _weighted(found: Values) -> list[Cell]:
    """Cells with another weighting than the unit one, from the best on, without those that have fewer seeds."""
    n = max(len(own) for own in found.values())
    pairs = [cell for cell in ranked(found) if cell.weighting != "unit" and len(found[cell]) == n]
    return [cell for cell in pairs if len(found.get(cell._replace(weighting="unit"), ())) == n]


class Weighted(NamedTuple):
    """The cells that have both weightings, and of each seed the geometric mean of their ratios."""

    cells: list[Cell]
    means: list[float]


def weighted_ratios(found: Values) -> Weighted:
    """min_snr's ratio to the unit weighting."""
    pairs = _weighted(found)
    seeds = sorted(set.intersection(*(set(found[cell]) for cell in pairs))) if pairs else []
    logs = [[math.log(found[c][s] / found[c._replace(weighting="unit")][s]) for c in pairs] for s in seeds]
    return Weighted(pairs, [math.exp(np.mean(own)) for own in logs])


def weighting_sentence(found: Values) -> str:
    """min_snr's ratio to the unit weighting over all cells that have both, and for each prediction."""
    pairs, means = weighted_ratios(found)
    if not pairs:
        return "measured with the unit weighting so far"
    own = {name: [c for c in pairs if own_prediction(c) == name] for name in ("eps", "x0", "own")}
    each = ", ".join(
        f"{math.exp(np.mean([ratio(found, c, c._replace(weighting='unit')).mean for c in cells])):.2f} with "
        f"{OWN_PREDICTIONS if name == 'own' else name}"
        for name, cells in own.items()
        if cells
    )
    mean = shown(mean_interval([math.log(one) for one in means]))
    return f"min_snr has {mean} times the unit weighting's distance over {len(pairs)} cells: {each}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose numbers are to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
