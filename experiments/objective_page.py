"""What the study of objective and variance says of its committed values (experiments/objective).

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
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from omegaconf import OmegaConf

from diffusion_lab.diffusion import cosine
from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.plotting import line_style, log_axis, panel_title, panels
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import Verdict, judge, judge_alone
from experiments.objective.split import OBJECTIVES, SPLITS, Split
from experiments.study_cells import UNDECIDED, outcome, right_or_wrong, rows, word

FOLDER = Path(__file__).resolve().parent / "objective"
METRIC, HELD_OUT = "fd2k_digits", "test_fd2k_digits"
BATCHES, SEEDS = (16, 64, 256), 8
SAME = ("v", "p")  # is ("v", "w")
RATE = 0.02  # of batches of 64
LEVEL = 1 - 0.05 / len(BATCHES)  # Bonferroni: one slope for each batch size
STEPS = torch.arange(1000)
MARKERS = {"w": "o", "p": "s", "optimal": "v", "inverted": "^"}
TICKS = (0.7, 0.8, 0.9, 1, 1.2, 1.4)


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


def summary() -> str:
    """The table of slopes and shares."""
    lines = ["| images of a batch | seeds | between objectives | noise | slope | interval | without `inverted` |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for batch in measured():
        part, found, without = shares(values(batch)), slope(batch), slope(batch, "inverted")
        lines.append(
            f"| {batch} | {found.n} | {_percent(part)} | {100 * part.noise:.0f} % | "
            f"{found.mean:+.3f} | {_ends(found)} | {without.mean:+.3f} {_ends(without)} |"
        )
    return "\n".join(lines)


def ratios(batch: str) -> str:
    """The table of a batch size: the distance with all in the weights, and the ratios of the other divisions to it."""
    lines = [f"| objective | w | {' | '.join(f'{one}, ratio | interval' for one in SPLITS[1:])} |"]
    lines.append("| --- | ---: |" + " ---: | ---: |" * len(SPLITS[1:]))
    for name, own, found in zip(OBJECTIVES, values(int(batch)), verdicts(int(batch)), strict=True):
        cells = [f"{math.exp(own[0].mean()):.3g}"]
        for one in found[1:]:
            marked = "**{}**" if one is not None and one.decided else "{}"
            cells += [marked.format(words) for words in (("", "") if one is None else ratio_words(one))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_objectives(batch: int) -> tuple[int, list[Verdict | None]]:
    """The objective with the lowest geometric mean of its four divisions, `p` of v being its `w`, and the others
    against it, paired by seed and decided together."""
    own = values(batch)
    means = np.where(np.isnan(own), own[:, :1], own).mean(1)
    lowest = int(means.mean(1).argmin())
    order = [lowest, *(k for k in range(len(OBJECTIVES)) if k != lowest)]
    judged = judge([dict(enumerate(np.exp(means[k]))) for k in order], "ratio", rising=False)
    return lowest, [judged[order.index(k)] for k in range(len(OBJECTIVES))]


def objectives() -> str:
    """The table of the objectives' ratios to the lowest one at each batch size."""
    found = [of_objectives(batch) for batch in measured()]
    lines = [f"| objective | {' | '.join(f'batches of {batch} | interval' for batch in measured())} |"]
    lines.append("| --- |" + " ---: | ---: |" * len(found))
    for k, name in enumerate(OBJECTIVES):
        cells = []
        for lowest, judged in found:
            one = judged[k]
            marked = "**{}**" if one is not None and one.decided else "{}"
            cells += ["lowest", ""] if k == lowest or one is None else [marked.format(w) for w in ratio_words(one)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    rates = _own_rates()
    best = (rates[split, _best(split, rates)] for split in ("p", "w"))
    both = [math.exp(p - w) for p, w in zip(*best, strict=True)]
    return found | {"batches of 64: min_snr drawn / weighted, each at its best learning rate": both}


def causes() -> str:
    """The table of what the slope and the shares rest on, also looked at afterwards."""
    lines = [
        "| images of a batch | slope without `w` | between objectives without v | the second moment explains | the "
        "spread explains |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for batch in measured():
        y, found = values(batch), slope(batch, "w")
        shown = [f"{100 * explained(y.mean(2), x):.0f} %" for x in (second_moments(), spreads())]
        lines.append(
            f"| {batch} | {found.mean:+.3f} {_ends(found)} | {_percent(shares(y[1:]))} | {' | '.join(shown)} |"
        )
    return "\n".join(lines)


def _own_rates() -> dict[tuple[str, float], list[float]]:
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


def _best(split: str, found: dict[tuple[str, float], list[float]]) -> float:
    return min((rate for own, rate in found if own == split), key=lambda rate: fmean(found[split, rate]))


def own_rates() -> str:
    """The table of these, as geometric means."""
    found = _own_rates()
    rates = sorted({rate for _, rate in found})
    lines = [f"| min_snr | {' | '.join(f'{rate:g}' for rate in rates)} |", "| --- |" + " ---: |" * len(rates)]
    for split, said in (("w", "weighted"), ("p", "drawn")):
        texts = [f"{math.exp(fmean(found[split, rate])):.3g}" for rate in rates]
        marked = [
            f"**{text}**" if rate == _best(split, found) else text for rate, text in zip(rates, texts, strict=True)
        ]
        lines.append(f"| {said} | {' | '.join(marked)} |")
    return "\n".join(lines)


def moments() -> str:
    """The table of the second moments, as ratios to those of all in the weights."""
    lines = [f"| objective | {' | '.join(SPLITS[1:])} |", "| --- |" + " ---: |" * len(SPLITS[1:])]
    for name, own in zip(OBJECTIVES, np.exp(second_moments()[:, 1:]), strict=True):
        lines.append(f"| {name} | {' | '.join('' if math.isnan(one) else f'{one:.2f}' for one in own)} |")
    return "\n".join(lines)


def afterwards() -> str:
    """The table of these, decided together."""
    lines = ["| ratio | seeds | value | verdict |", "| --- | ---: | ---: | --- |"]
    found = means()
    for name, one in zip(found, judge_alone([*found.values()], "ratio"), strict=True):
        if one is not None:
            lines.append(f"| {name} | {one.n} | {' '.join(ratio_words(one))} | {word(one)} |")
    return "\n".join(lines)


def predictions() -> str:
    """What each prediction is about, and its outcome."""
    first, middle, last = BATCHES
    kinds = [  # what, predicted, the batch sizes that it needs, and their value and outcome
        (f"slope at {first}", "above 0", [first], lambda: _beyond(slope(first))),
        (f"fall of the slope from {first} to {last}", "above 0", [first, last], lambda: _beyond(fall())),
        (f"share between objectives at {first}", "above 50 %", [first], lambda: _share(first, 0.5)),
        (f"share between objectives at {last}", "above 80 %", [last], lambda: _share(last, 0.8)),
        (
            f"objectives of which `inverted` is worse than `w`, at {first} and {last}",
            "at least 3, and 0",
            [first, last],
            lambda: _inverted(first, last),
        ),
        (f"objectives of which `optimal` is better than `w` at {middle}", "0", [middle], lambda: _optimal(middle)),
        ("lowest objective of each batch size", "one for all", [*BATCHES], _lowest),
    ]
    lines = ["| no. | what | value | predicted | outcome |", "| ---: | --- | ---: | --- | --- |"]
    for number, (what, said, needed, found) in zip(("1", "2", "3", "3", "4", "5", "6"), kinds, strict=True):
        missing = [batch for batch in needed if batch not in measured()]
        value, known = ("", f"runs missing: {', '.join(map(str, missing))}") if missing else found()
        lines.append(f"| {number} | {what} | {value} | {said} | {known} |")
    return "\n".join(lines)


def _beyond(found: Interval) -> tuple[str, str]:
    return f"{found.mean:+.3f} {_ends(found)}".strip(), outcome(found, 0, math.inf)


def _share(batch: int, least: float) -> tuple[str, str]:
    found = shares(values(batch))
    return _percent(found), outcome(found.interval, least, math.inf)


def _inverted(first: int, last: int) -> tuple[str, str]:
    (worse, still), (later, later_still) = (_counts(batch, "inverted", "worse") for batch in (first, last))
    can_be = worse + still >= 3 and not later
    known = UNDECIDED if can_be and (worse < 3 or later_still) else right_or_wrong(can_be)
    return f"{worse}, {later}", known


def _optimal(batch: int) -> tuple[str, str]:
    better, _ = _counts(batch, "optimal", "better")
    return f"{better}", right_or_wrong(not better)


def _lowest() -> tuple[str, str]:
    found = [of_objectives(batch) for batch in BATCHES]
    sure = [OBJECTIVES[best] for best, own in found if all(other.decided for other in own if other)]
    different, every = len(set(sure)) > 1, len(sure) == len(found)
    known = right_or_wrong(not different) if different or every else UNDECIDED
    return ", ".join(OBJECTIVES[best] for best, _ in found), known


def _counts(batch: int, split: str, word: str) -> tuple[int, int]:
    """Objectives of which a division has this verdict against all in the weights, and those where it is open."""
    words = [own[SPLITS.index(split)] for own in verdicts(batch)]
    return sum(one.word == word for one in words if one), sum(one.word == UNDECIDED for one in words if one)


def figure() -> Figure:
    """Distance over second moment, each to the geometric mean of its objective's divisions: a panel for each batch,
    with 95 % intervals over seeds, and the slope."""
    drawn, axes = panels(len(measured()), 1, 3.6, sharey=True)
    x = second_moments() - np.nanmean(second_moments(), 1, keepdims=True)
    ends = np.array([np.nanmin(x), np.nanmax(x)])
    for axis, batch in zip(axes, measured(), strict=True):
        y = values(batch) - np.nanmean(values(batch), 1, keepdims=True)
        for i, k in np.argwhere(~np.isnan(x)):
            own, split = mean_interval(y[i, k].tolist()), SPLITS[k]
            if own.low is not None and own.high is not None:
                where, color = math.exp(x[i, k]), line_style(i).color
                axis.vlines(where, math.exp(own.low), math.exp(own.high), color=color, linewidth=1)
                axis.plot(where, math.exp(own.mean), MARKERS[split], color=color, markersize=5)
        axis.plot(np.exp(ends), np.exp(slope(batch).mean * ends), color="black", linewidth=1)
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.set_xlabel("second moment")
        panel_title(axis, f"batches of {batch}", "black", len(axes))
    for axis in axes:
        log_axis(axis)
    axes[0].set_ylabel("Fréchet distance")
    handles = [
        *(Line2D([], [], color=line_style(i).color, linewidth=3, label=name) for i, name in enumerate(OBJECTIVES)),
        *(Line2D([], [], color="black", marker=of, linestyle="", label=name) for name, of in MARKERS.items()),
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _ends(found: Interval) -> str:
    return "" if found.low is None or found.high is None else f"[{found.low:+.3f}, {found.high:+.3f}]"


def _percent(found: Shares) -> str:
    """A share with its interval, cut at 0 and 100 %."""
    share, *ends = (
        f"{100 * min(max(one, 0), 1):.0f}"
        for one in (found.objectives, found.interval.low, found.interval.high)
        if one is not None
    )
    return f"{share} %" + (f" [{', '.join(ends)}]" if ends else "")


PARTS = {
    "moments": moments,
    "causes": causes,
    "own_rates": own_rates,
    "afterwards": afterwards,
    "predictions": predictions,
    "summary": summary,
    "objectives": objectives,
    "ratios": ratios,
}
FIGURES = {"objective/digits.svg": ("objective/digits_256.per_seed.csv", figure)}
