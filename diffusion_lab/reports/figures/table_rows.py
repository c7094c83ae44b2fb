"""Figures with a line or bar per row of the table: differences to the baseline, and what training cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.intervals import Interval
from diffusion_lab.plotting import SHORT_NAME, line_style, panels, row_names
from diffusion_lab.reports.comparison.cells import decimals, duration, number, with_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import directed, pairs, rising, values, with_units
from diffusion_lab.reports.comparison.rows import Row, baseline, summarise, visible_size
from diffusion_lab.reports.figures.base import Figure, averaged_runs, seeds_text
from diffusion_lab.runs.run import Run

FAR = 6.0  # means larger than this multiple of the median one are ignored for the axis limits
WIDE = 1.5  # so are interval ends farther from the means than this multiple of the median half width
BAND = 5.0  # the band is seen as a whole unless the axis would be longer than this multiple of what the rows need


def differences(groups: Sequence[Group], metric: str, size: float | None = None) -> Figure | None:
    """Paired differences to the baseline with their intervals, against 0; those with a verdict are filled and bold.

    Args:
        groups: the rows of the table.
        metric: what is compared.
        size: the table's difference for the number of seeds, drawn as a band of +-size; None: its default.
    """
    size = size or visible_size(groups, metric)
    rows, base = summarise(groups, metric), baseline(groups, metric)
    compared = [row for row in rows if row.difference]
    if not compared:
        return None
    theirs = values(base, metric)
    seeds = {row.group.label: [a - b for a, b in pairs(values(row.group, metric), theirs)] for row in compared}
    ends = with_band(limits([row.difference for row in compared if row.difference]), size)
    seen = size if size and size < max(map(abs, ends)) else None  # else the band would be all there is
    counted = seeds_text([row.group for row in compared], lambda group: seeds[group.label])
    caption = (
        f"{metric} minus that of {base.label} at the same seed: diamonds are means over the common seeds ({counted}), "
        "lines their 95 % intervals of Student's t, dots single seeds. Filled and bold: a verdict after Holm's "
        "correction for the number of rows; hollow: none. Without any difference, one in 20 of the plain intervals "
        "excludes 0 by chance. An arrow at the edge points to values beyond it."
    )
    if size:
        caption += f" Grey: differences up to ±{size:g}" if seen else f" The whole axis lies within ±{size:g}"
        tested = any(row.tested for row in rows)
        caption += ", the size for which the table gives the number of seeds." if tested else "."
    name = base.label if len(base.label) <= SHORT_NAME else "the baseline"
    return Figure.drawn(f"Difference to {name}", caption, _difference_lines, groups, metric, rows, seeds, ends, seen)


def limits(present: Sequence[Interval]) -> tuple[float, float]:
    """Axis limits that include 0 and the intervals, except distant groups and the ends of very wide intervals."""
    usual = FAR * np.median([abs(difference.mean) for difference in present])
    kept = [difference for difference in present if abs(difference.mean) <= usual]
    low, high = min(0.0, *(d.mean for d in kept)), max(0.0, *(d.mean for d in kept))
    widths = [d.half_width for d in kept if d.half_width is not None]
    reach = max(high - low, WIDE * float(np.median(widths)) if widths else 0.0) or 1.0
    ends = [end for d in kept for end in (d.low, d.high) if end is not None]
    low, high = max(min([low, *ends]), low - reach), min(max([high, *ends]), high + reach)
    margin = 0.06 * (high - low or reach)
    return low - margin, high + margin


def with_band(axis_limits: tuple[float, float], size: float | None) -> tuple[float, float]:
    """Axis limits that include +-size and a margin too; the given ones if they were less than 1 / `BAND` of that."""
    if not size:
        return axis_limits
    low, high = min(axis_limits[0], -1.06 * size), max(axis_limits[1], 1.06 * size)
    return (low, high) if high - low <= BAND * (axis_limits[1] - axis_limits[0]) else axis_limits


def _difference_lines(
    groups: Sequence[Group],
    metric: str,
    rows: Sequence[Row],
    seeds: dict[str, list[float]],
    ends: tuple[float, float],
    band: float | None,
) -> Any:
    """A line per row, in the table's order, with its numbers at the right edge."""
    places = decimals([row.metric.mean for row in rows if row.metric])
    texts = [with_interval(row.difference, places, signed=True) if row.difference else row.unpaired for row in rows]
    lines = [
        IntervalLine(row.group.label, row.difference, text, row.bold) for row, text in zip(rows, texts, strict=True)
    ]
    figure, axis = interval_lines(lines, ends)
    if band:
        axis.axvspan(*np.clip([-band, band], *ends), color="#888888", alpha=0.15, linewidth=0, zorder=0)
    for place, row in enumerate(rows):
        if not row.difference:
            continue
        dots = seeds[row.group.label]
        axis.plot(dots, [place] * len(dots), "o", color="#555555", markersize=2.2, alpha=0.6, zorder=4)
    left, right = ("worse", "better") if rising(groups, metric) else ("better", "worse")
    if not directed(groups, metric):
        left, right = "lower", "higher"
    axis.set_xlabel(f"← {left}      difference in {with_units(groups, metric)}      {right} →")
    return figure


class IntervalLine(NamedTuple):
    """A line of `interval_lines`: its name, its difference if it has one, the text at its right, whether it is bold."""

    name: str
    difference: Interval | None
    text: str
    bold: bool


def interval_lines(lines: Sequence[IntervalLine], ends: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axis from `ends[0]` to `ends[1]` with a line for each difference, and a rule at 0."""
    figure, (axis,) = panels(1, height=0.9 + 0.31 * len(lines))
    axis.set_xlim(*ends)
    for place, line in enumerate(lines):
        if line.difference:
            _draw_interval(axis, place, line.difference, line_style(place).color, line.bold)
        axis.annotate(
            line.text,
            (1.03, place),
            xycoords=("axes fraction", "data"),
            va="center",
            color="#222222" if line.difference else "#777777",
            fontweight="bold" if line.bold else "normal",
            annotation_clip=False,
        )
    axis.axvline(0, color="#222222", linewidth=1, zorder=1)
    row_names(axis, [line.name for line in lines])
    _plain_rows(axis)
    axis.tick_params(axis="y", pad=10)
    for label, line in zip(axis.get_yticklabels(), lines, strict=True):
        label.set_fontweight("bold" if line.bold else "normal")
    return figure, axis


def _draw_interval(axis: Any, place: int, interval: Interval, color: str, bold: bool) -> None:
    mean, low, high = interval.mean, interval.low, interval.high
    left, right = axis.get_xlim()
    width = 2.4 if bold else 1.3
    if low is not None and high is not None:
        axis.plot(np.clip([low, high], left, right), [place] * 2, color=color, linewidth=width, solid_capstyle="butt")
    beyond = [("<", left, min(mean, mean if low is None else low) < left)]
    beyond.append((">", right, max(mean, mean if high is None else high) > right))
    for marker, edge, is_beyond in beyond:
        if is_beyond:
            axis.plot(edge, place, marker, color=color, markersize=7, clip_on=False, zorder=5)
    if left <= mean <= right:
        face = color if bold else "white"
        axis.plot(mean, place, "D", color=color, markerfacecolor=face, markersize=6, zorder=5)


class _Kind(NamedTuple):
    """A cost: the heading of its panel, its value of a run, and how it is written."""

    title: str
    value: Callable[[Run], float | None]
    text: Callable[[float], str]


def _gigabytes(run: Run) -> float | None:
    return None if run.memory_mb is None else run.memory_mb / 1000


KINDS = (
    _Kind("images per second (higher is better)", lambda run: run.images_per_second, lambda value: number(value, 3)),
    _Kind("training time (lower is better)", lambda run: run.seconds, duration),
    _Kind("memory in GB (lower is better)", _gigabytes, lambda value: number(value, 3)),
)


def cost(groups: Sequence[Group]) -> Figure | None:
    """Images per second, training time and, where it is recorded, memory."""
    measured = [
        (i, group) for i, group in enumerate(groups) if any(run.images_per_second for run in averaged_runs(group))
    ]
    if not measured:
        return None
    caption = (
        f"Bars: mean, dots: seeds; {seeds_text([group for _, group in measured])}. Training including validations and "
        "sample grids; compare only runs on the same machine without other load. Memory is the peak, of tensors on a "
        "GPU and of the whole process on a CPU."
    )
    return Figure.drawn("Cost", caption, _cost_bars, measured)


def _cost_bars(measured: Sequence[tuple[int, Group]]) -> Any:
    runs = [run for _, group in measured for run in averaged_runs(group)]
    kinds = [kind for kind in KINDS if any(kind.value(run) is not None for run in runs)]
    figure, axes = panels(len(kinds), height=0.75 + 0.33 * len(measured), sharey=True)
    for axis, kind in zip(axes, kinds, strict=True):
        for row, (i, group) in enumerate(measured):
            numbers = [value for run in averaged_runs(group) if (value := kind.value(run)) is not None]
            if numbers:
                mean = float(np.mean(numbers))
                axis.barh(row, mean, height=0.62, color=line_style(i).color, alpha=0.75 if group.done else 0.3)
                axis.plot(numbers, [row] * len(numbers), "o", color="white", markeredgecolor="#333333", markersize=4)
                beside = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "color": "#333333"}
                axis.annotate(kind.text(mean), (max(mean, *numbers), row), **beside)
        _plain_rows(axis)
        axis.margins(x=0.28)
        axis.set_xlim(left=0)
        axis.set_title(kind.title)
    row_names(axes[0], [group.label for _, group in measured])
    return figure


def _plain_rows(axis: Any) -> None:
    """No ticks and lines at the left of rows."""
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
