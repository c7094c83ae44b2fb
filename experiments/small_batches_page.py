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
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.plotting import line_style, log_axis, panels
from diffusion_lab.tables.text import ratio_text
from diffusion_lab.verdicts import judge_alone
from experiments.study_along import files_of, learning_rates
from experiments.study_cells import outcome, right_or_wrong, rows, word

FOLDER = Path(__file__).resolve().parent / "small_batches"
METRIC, BATCH, AT = "fd2k_digits", 64, 400  # metric, batch of the control, and its steps in the main part
SLOTS, UNMIXED = (f"equal_loss_slots stratify={mixed}" for mixed in ("true", "false"))
RATIOS = {  # name in the figure -> part, and its two rows
    "stratified / uniform": ("mixing", "stratified", "uniform"),
    "slots, mixed / not mixed": ("mixing", SLOTS, UNMIXED),
    "slots, not mixed / uniform": ("distribution", UNMIXED, "uniform"),
    "logit_normal / uniform": ("distribution", "logit_normal", "uniform"),
    "infonoise / uniform": ("distribution", "infonoise", "uniform"),
}
TICKS = (0.6, 0.7, 0.8, 1, 1.25, 1.5, 1.8)
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


def means() -> dict[str, list[float]]:
    """Name of a ratio -> of each seed its geometric mean over the batch sizes."""
    batches, steps = tables()
    return {
        name: np.exp(_logs(row, base, batches, steps)[0].mean(0)).tolist() for name, (_, row, base) in RATIOS.items()
    }


def ratio(row: str, base: str, batches: dict[int, Table], steps: dict[int, Table]) -> Found:
    """Of two rows, over the seeds that all tables have of both."""
    logs, control = _logs(row, base, batches, steps)
    slope, beside = (_slopes(list(of), own) for of, own in ((batches, logs), (steps, control)))
    return Found(*(mean_interval(each.tolist(), LEVEL) for each in (logs.mean(0), slope, beside, slope + beside)))


def _logs(row: str, base: str, batches: dict[int, Table], steps: dict[int, Table]) -> tuple[np.ndarray, np.ndarray]:
    """ln r (batch sizes, seeds) and ln c (steps, seeds)."""
    every = [table[name] for table in (*batches.values(), *steps.values()) for name in (row, base)]
    seeds = sorted(set.intersection(*(set(one) for one in every)))
    logs, control = (
        np.array([[math.log(table[row][seed] / table[base][seed]) for seed in seeds] for table in of.values()])
        for of in (batches, steps)
    )
    return logs, control


def _slopes(values: list[int], logs: np.ndarray) -> np.ndarray:
    """Of (values, seeds) on log2 of the values: (seeds,)."""
    x = np.log2(values) - np.log2(values).mean()
    return x @ logs / (x**2).sum()


def table() -> str:
    """The ratios, and their factors per doubling."""
    batches, steps = tables()
    lines = [
        "| part | ratio | seeds | mean over batches | verdict | per doubling of the batch | of the steps | excess |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    judged = judge_alone([*means().values()], "ratio")
    for (part, row, base), verdict in zip(RATIOS.values(), judged, strict=True):
        mean, *others = map(_words, ratio(row, base, batches, steps))
        assert verdict is not None  # at 1 - 0.05/5 too
        cells = [part, f"`{row}` / `{base}`", f"{verdict.n}", mean, word(verdict), *others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def predictions() -> str:
    """The number that each prediction is about, and what follows for it."""
    batches, steps = tables()
    mixing, mixed_slots, slots, _, infonoise = (ratio(row, base, batches, steps) for _, row, base in RATIOS.values())
    kinds = [
        ("1", "`stratified` / `uniform`", mixing.mean, 0.0, 1.0),
        ("2", f"`{SLOTS}` / `{UNMIXED}`", mixed_slots.mean, 0.0, 1.0),
        ("3", f"`{UNMIXED}` / `uniform`", slots.mean, 0.0, 1.0),
        ("4", "`stratified` / `uniform`, excess per doubling of the batch", mixing.excess, 0.9, 1.1),
        ("5", "`infonoise` / `uniform`", infonoise.mean, 1.0, math.inf),
    ]
    lines = ["| no. | ratio | value | predicted | outcome |", "| ---: | --- | ---: | --- | --- |"]
    for number, what, own, low, high in kinds:
        said = f"{low:g} to {high:g}" if 0 < low < high < math.inf else f"above {low:g}" if low else f"below {high:g}"
        ends = (math.log(end) if end else -math.inf for end in (low, high))
        lines.append(f"| {number} | {what} | {_words(own)} | {said} | {outcome(own, *ends)} |")
    best = {batch: min(own, key=own.__getitem__) for batch, own in learning_rates(FOLDER / "lr", METRIC).items()}
    times = best[min(best)] / best[max(best)]
    said = f"at most 0.25 | {right_or_wrong(times <= 0.25)}, of three seeds"
    return "\n".join([*lines, f"| 6 | best learning rate at {min(best)} / at {max(best)} | {times:g} | {said} |"])


def afterwards() -> str:
    """What was not asked before the runs: the mixed slots against uniform timesteps, their two parts against one
    another, and two excesses without the control's first number of steps."""
    batches, steps = tables()
    whole = ratio(SLOTS, "uniform", batches, steps)
    later = {n: table for n, table in steps.items() if n != min(steps)}
    names = [*RATIOS]
    own = means()
    parts = [math.log(a / b) for a, b in zip(own[names[2]], own[names[1]], strict=True)]
    kinds = [
        *(
            (f"`{SLOTS}` / `uniform`, {of}", found)
            for of, found in zip(("mean", "per doubling of the batch", "of the steps", "excess"), whole, strict=True)
        ),
        (f"{names[2]} over {names[1]}, means", mean_interval(parts, LEVEL)),
        *(
            (f"{name}, excess without the control's {min(steps)} steps", ratio(row, base, batches, later).excess)
            for name, (_, row, base) in RATIOS.items()
            if name in names[2:4]
        ),
    ]
    lines = [f"| {what} | {_words(found)} |" for what, found in kinds]
    return "\n".join(["| what | value |", "| --- | ---: |", *lines])


def figure() -> Figure:
    """The ratios at every batch size and at every number of steps of the control."""
    batches, steps = tables()
    drawn, axes = panels(2, 1, 3.8, sharey=True)
    for axis, of, what in zip(axes, (batches, dict(sorted(steps.items()))), ("batch", "steps"), strict=True):
        for place, (name, (_, row, base)) in enumerate(RATIOS.items()):
            color, dash = line_style(place)
            own = [at(table, row, base) for table in of.values()]
            x = np.array([*of]) * 2 ** (0.05 * (place - 2))  # moved apart
            axis.plot(x, np.exp([one.mean for one in own]), "o", color=color, linestyle=dash, label=name, markersize=4)
            for value, one in zip(x, own, strict=True):
                ends = [end for end in (one.low, one.high) if end is not None]
                axis.plot([value] * len(ends), np.exp(ends), color=color, linewidth=1.2)
        axis.set_xscale("log", base=2)
        axis.set_xticks([*of], [f"{value:,}" for value in of])
        axis.minorticks_off()
        axis.axhline(1, color="gray", linewidth=0.8)
        axis.set_xlabel({"batch": "batch size, 25,600 images in all", "steps": "steps, batches of 64"}[what])
    log_axis(axes[0])
    axes[0].set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes[0].set_ylabel("ratio of two Fréchet distances")
    handles, names = axes[0].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside lower left", ncols=3, handlelength=3)
    return drawn


def at(of: Table, row: str, base: str) -> Interval:
    """The ratio of two rows of one table, in logarithms."""
    return mean_interval([math.log(of[row][seed] / of[base][seed]) for seed in of[row].keys() & of[base].keys()], LEVEL)


def _words(found: Interval) -> str:
    said, *ends = (None if one is None else ratio_text(math.exp(one)) for one in (found.mean, found.low, found.high))
    return f"{said}" if None in ends else f"{said} [{ends[0]}, {ends[1]}]"


PARTS = {"predictions": predictions, "table": table, "afterwards": afterwards}
FIGURES = {"small_batches/ratios.svg": ("small_batches/digits_4.per_seed.csv", figure)}
