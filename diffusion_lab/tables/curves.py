"""How far the rows of a table have come: figures of what is measured, and how much faster than the baseline they are.

A row is faster by how many times fewer images, and how much less training time, it needs to reach the baseline's final
metric. The factors are those of `reports.pair.speedup`, beside what the paper says. Training time is read from
a clock: it holds the cost of a method itself, and compares only runs on equal and equally busy machines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.intervals import Interval
from diffusion_lab.plotting import line_style, log_if_wide, panels
from diffusion_lab.reports import figures
from diffusion_lab.reports.comparison.cells import Cell, Comparison
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures import Figure
from diffusion_lab.reports.figures.ratios import logarithms_as_ratios, of_what, sides
from diffusion_lab.reports.figures.table_rows import (
    IntervalLine,
    interval_lines,
    limits,
    marks,
    with_band,
    with_equality,
)
from diffusion_lab.reports.pair.speedup_of_runs import HOW, cell, in_images, in_seconds, turned
from diffusion_lab.runs.run import Run
from diffusion_lab.tables.results import Results
from diffusion_lab.tables.said import said_of, when_words
from diffusion_lab.tables.table import TableColumn, cell_titles, reference_title
from diffusion_lab.tables.text import within
from diffusion_lab.tables.values import Gathered
from diffusion_lab.verdicts import Scale

DIFFERENCES = "differences.svg"
LEGEND = (
    "Factor by which the baseline needs more images, or more training time, until its own final value is reached; "
    "above 1 the row is faster; geometric mean over seeds with the 95 % interval of Student's t of its logarithm. A "
    f"seed that does not reach the value counts as a bound. {HOW} Training time is without evaluations, and "
    "comparable only between runs on machines that were equally busy; it has no interval where the runs were not "
    "trained in the same hours."
)


def groups_of(results: Results, column: TableColumn, gathered: Gathered) -> dict[str, Group]:
    """Name of a row -> its finished runs in a column, of which those that diverged count for nothing."""
    table = results.table
    found = {row.name: gathered.runs.get((row.name, column.name)) for row in table.rows}
    lost = {name: frozenset(results.diverged.get((name, column.name), ())) for name in found}
    return {
        name: Group(list(runs), label=table.row(name).title, diverged=lost[name])
        for name, runs in found.items()
        if runs
    }


def speed(results: Results, column: TableColumn, gathered: Gathered) -> Comparison | None:
    """The factors of all rows of a column; None if what is measured has no curve, or there is no baseline."""
    table, groups, metric = results.table, groups_of(results, column, gathered), gathered.values.quantity
    baseline = table.baseline_of(column)
    base = groups.get(baseline)
    if base is None or metric not in base.runs[0].metric_names:
        return None
    lines, factors = [], []
    for name, own in groups.items():
        if name != baseline:
            published = table.row(name).speedup
            measured = [found(base, own, metric) for found in (in_images, in_seconds)]
            factors.append(measured[0].found)
            texts = [one.why if one.found is None else cell(one.found) for one in measured]
            texts.append("" if published is None else f"{published:g}")
            lines.append([Cell(own.label), *map(Cell, texts)])
    if not lines:
        return None
    titles = [f"against {base.label}", "images", "training time", "published"]
    if not any(line[-1].text for line in lines):
        titles, lines = titles[:-1], [line[:-1] for line in lines]
    note = turned([one for one in factors if one is not None], base.label)
    return Comparison(titles, lines, LEGEND, [note] if note else [], left=1)


def differences(results: Results) -> dict[str, Figure]:
    """`DIFFERENCES` -> the ratio or difference of each row to its baseline, beside the claim; empty without any."""
    if not results.outcomes:
        return {}
    onto = math.log if results.scale == "ratio" else float
    lines = []
    for outcome in results.outcomes:
        said, verdict = said_of(results, outcome), outcome.compared
        low, high = (None if end is None else onto(end) for end in (verdict.low, verdict.high))
        text = " ".join(filter(None, (said.compared, said.interval)))
        claim = f"{text}   claim {said.claim}: {outcome.word}" if said.claim else with_equality(text, verdict.word)
        interval = Interval(onto(verdict.size), None, low, high, verdict.n)
        lines.append(IntervalLine(said.where, interval, claim, verdict.word))
    when = {when_words(results, outcome.cell) for outcome in results.outcomes}
    bases = {reference_title(results.table, outcome.cell.column) for outcome in results.outcomes}
    base = bases.pop() if len(bases) == 1 else "the baseline of its column"
    at = when.pop() if len(when) == 1 else ""
    label = sides(of_what(results.scale, results.values.quantity, f"{base}{at}"), results.better)
    title = "Ratio to the baseline" if results.scale == "ratio" else "Difference to the baseline"
    of = lines, label, results.scale, results.table.margin
    return {DIFFERENCES: Figure.drawn(title, _caption(results), interval_figure, *of)}


def _caption(results: Results) -> str:
    counts = sorted({outcome.compared.n for outcome in results.outcomes})
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    ratio = results.scale == "ratio"
    said = marks(within(results.table), [outcome.compared.word for outcome in results.outcomes])
    claims = ", which side the paper claims, and whether that holds here"
    right = f"Right: the numbers{claims * any(outcome.claimed for outcome in results.outcomes)}."
    when = {when_words(results, outcome.cell) for outcome in results.outcomes}
    return (
        f"{results.values.quantity} {'over' if ratio else 'minus'} the baseline's at the same seed"
        f"{' or'.join(sorted(when))}: diamonds are {'geometric means' if ratio else 'means'} over n = {seeds} seeds, "
        "lines their 95 % intervals, which hold for all rows of a column at once; an arrow at the edge points to "
        f"values beyond it. {f'{said}. ' if said else ''}{right}"
        f"{f' Grey: equal {within(results.table)}.' if ratio else ''}"
    )


def interval_figure(lines: Sequence[IntervalLine], label: str, scale: Scale, margin: float) -> Any:
    """A line for each row; ratios as logarithms, on an axis that is labelled with ratios, with the band of equality."""
    low, high = limits([line.difference for line in lines if line.difference])
    decided = [line.difference for line in lines if line.bold and line.difference]  # never beyond the edge
    gap = 0.06 * (high - low)
    low = min([low, *((one.mean if one.low is None else one.low) - gap for one in decided)])
    high = max([high, *((one.mean if one.high is None else one.high) + gap for one in decided)])
    if scale == "ratio":
        low, high = with_band((low, high), math.log(margin))
    figure, axis = interval_lines(lines, (low, high))
    axis.set_xlabel(label)
    if scale == "ratio":
        band = math.log(margin)
        axis.axvspan(max(low, -band), min(high, band), color="#888888", alpha=0.15, linewidth=0, zorder=0)
        logarithms_as_ratios(axis, (low, high))
    return figure


def curves(results: Results, gathered: Gathered) -> dict[str, Figure]:
    """File name -> figure of how far all rows of a column have come: what is measured, and the validation loss, against
    images and against time; the losses of training where runs have no curve of what is measured. Of rows that are
    numbers of the same runs: these numbers."""
    metric = results.values.quantity
    drawn: dict[tuple[Path, ...], tuple[TableColumn, Run, dict[str, Figure]]] = {}
    for column in results.table.columns:
        groups = list(groups_of(results, column, gathered).values())
        folders = tuple(run.folder for group in groups for run in group.runs)
        distinct = {tuple(run.folder for run in group.runs) for group in groups}
        if len(groups) > 1 and len(distinct) == 1:  # rows are several numbers of the same runs, not of their courses
            made = numbers(results, column)
            drawn[*folders, Path(column.name)] = column, groups[0].runs[0], {} if made is None else {"numbers": made}
        elif folders and folders not in drawn:  # columns may be several numbers of the same runs
            drawn[folders] = column, groups[0].runs[0], _figures(groups, metric)
    several = len(drawn) > 1
    return {
        _file_name(name, run, column.name if several else ""): _under(column.title, figure) if several else figure
        for column, run, made in drawn.values()
        for name, figure in made.items()
    }


def _file_name(name: str, run: Run, column: str) -> str:
    """`images-digits.svg`: what is drawn, and the data of the runs, which a scale may have put in the place of the
    paper's; with the column where there are several."""
    return "-".join(filter(None, [name, Path(data_of(run)).name, column])) + ".svg"


def data_of(run: Run) -> str:
    """The option that named the data set of a run; "" if it is not recorded."""
    return str(run.choices.get("dataset") or "")


def _under(title: str, figure: Figure) -> Figure:
    return figure._replace(title=f"{title}: {figure.title[0].lower()}{figure.title[1:]}")


def _figures(groups: Sequence[Group], metric: str) -> dict[str, Figure]:
    if any(metric in run.metric_names for group in groups for run in group.runs):
        made = {"images": figures.quality_over_training(groups, metric), "time": figures.against_time(groups, metric)}
    else:
        losses = figures.quality_over_training(groups, "train/loss")
        made = {
            "loss": losses and losses._replace(title="Loss against images seen"),
            "gan": figures.adversarial_losses(groups),
        }
    return {name: figure for name, figure in made.items() if figure is not None}


def numbers(results: Results, column: TableColumn) -> Figure | None:
    """Measured, published, and what the rows are compared with, over the rows; None without two numbers."""
    title = cell_titles(column)[-1]
    cells = [cell for cell in results.cells if (cell.column, cell.cell) == (column, title)]
    measured = {k: cell.mean.mean for k, cell in enumerate(cells) if cell.mean is not None}
    if len(measured) < 2:
        return None
    comparable = results.table.unit == results.values.quantity
    published = {k: c.published for k, c in enumerate(cells) if c.published is not None and comparable}
    others = {k: c.row.against[column.name] for k, c in enumerate(cells) if column.name in c.row.against}
    lines = {"measured": measured, "published": published, results.table.against: others}
    shown = ", ".join(name for name, points in lines.items() if points)
    of = lines, [cell.row.title for cell in cells], results.values.quantity
    return Figure.drawn(column.title, f"By row: {shown}; mean over seeds.", _numbers_axis, *of)


def _numbers_axis(lines: dict[str, dict[int, float]], rows: Sequence[str], quantity: str) -> Any:
    figure, (axis,) = panels(1, height=3.6)
    for i, (name, points) in enumerate(lines.items()):
        if points:
            color, dash = line_style(i)
            axis.plot(list(points), list(points.values()), color=color, linestyle=dash, marker="o", label=name)
    axis.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
    axis.set_ylabel(quantity)
    log_if_wide(axis, [np.array(list(points.values())) for points in lines.values() if points])
    axis.legend(fontsize=9)
    return figure
