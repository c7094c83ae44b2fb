"""The differences of the table as a picture: one line per group, in the table's order, against the baseline's 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diffusion_lab.intervals import Interval
from diffusion_lab.plotting import SHORT_NAME, data_uri, line_style, panels, row_names, style
from diffusion_lab.reports.comparison.cells import decimals, with_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import directed, pairs, rising, values, with_units
from diffusion_lab.reports.comparison.rows import Row, baseline, summarise, visible_size
from diffusion_lab.reports.figures.base import Figure, seeds_text

FAR = 6.0  # means larger than this multiple of the median one are ignored for the axis limits
WIDE = 1.5  # so are interval ends farther from the means than this multiple of the median half width
BAND = 5.0  # the band is seen as a whole unless the axis would be longer than this multiple of what the rows need


def differences(groups: Sequence[Group], metric: str, size: float | None = None) -> Figure | None:
    """Paired differences to the baseline with their intervals; those with a verdict are filled and bold.

    Args:
        groups: the rows of the table.
        metric: what is compared.
        size: the table's difference for the number of seeds, drawn as a band of +-size; None: its default.
    """
    size = size or visible_size(groups, metric)
    rows, base = summarise(groups, metric), baseline(groups, metric)
    compared = [row.group for row in rows if row.difference]
    if not compared:
        return None
    theirs = values(base, metric)
    seeds = {group.label: np.array([a - b for a, b in pairs(values(group, metric), theirs)]) for group in compared}
    with style():
        figure, (axis,) = panels(1, height=0.9 + 0.31 * len(rows))
        axis.set_xlim(*with_band(limits([row for row in rows if row.difference]), size))
        seen = size if size and size < max(map(abs, axis.get_xlim())) else None  # else the band would be all there is
        if seen:
            axis.axvspan(*np.clip([-seen, seen], *axis.get_xlim()), color="#888888", alpha=0.15, linewidth=0, zorder=0)
        places = decimals([row.metric.mean for row in rows if row.metric])
        for place, row in enumerate(rows):
            _draw(axis, place, row, line_style(place).color, seeds.get(row.group.label, np.array([])), places)
        _finish(axis, groups, rows, metric)
        image = data_uri(figure)
    caption = (
        f"{metric} minus that of {base.label} at the same seed: diamonds are means over the common seeds "
        f"({seeds_text(compared, lambda group: seeds[group.label].tolist())}), lines their 95 % intervals of "
        f"Student's t, dots single seeds. Filled and bold: a verdict after Holm's correction for the number of rows; "
        "hollow: none. Without any difference, one in 20 of the plain intervals excludes 0 by chance. An arrow at the "
        "edge points to values beyond it."
    )
    if size:
        caption += f" Grey: differences up to ±{size:g}" if seen else f" The whole axis lies within ±{size:g}"
        tested = any(row.verdict is not None and row.verdict.p is not None for row in rows)
        caption += ", the size for which the table gives the number of seeds." if tested else "."
    name = base.label if len(base.label) <= SHORT_NAME else "the baseline"
    return Figure(f"Difference to {name}", caption, image)


def limits(rows: Sequence[Row]) -> tuple[float, float]:
    """Axis limits that include 0 and the intervals, except distant groups and the ends of very wide intervals."""
    present = [row.difference for row in rows if row.difference]
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


def _draw(axis, place: int, row: Row, color: str, seeds: np.ndarray, places: int) -> None:
    """One line, and its numbers at the right edge."""
    text, weight, tone = row.unpaired, "normal", "#777777"
    if row.difference:
        text, tone = with_interval(row.difference, places, signed=True), "#222222"
        weight = "bold" if row.bold else "normal"
        _draw_interval(axis, place, row.difference, color, row.bold)
        axis.plot(seeds, [place] * len(seeds), "o", color="#555555", markersize=2.2, alpha=0.6, zorder=4)
    axis.annotate(
        text,
        (1.03, place),
        xycoords=("axes fraction", "data"),
        va="center",
        color=tone,
        fontweight=weight,
        annotation_clip=False,
    )


def _draw_interval(axis, place: int, interval: Interval, color: str, bold: bool) -> None:
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


def _finish(axis, groups: Sequence[Group], rows: Sequence[Row], metric: str) -> None:
    axis.axvline(0, color="#222222", linewidth=1, zorder=1)
    row_names(axis, [row.group.label for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.bold else "normal")
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0, pad=10)
    axis.spines["left"].set_visible(False)
    better, worse = ("worse", "better") if rising(groups, metric) else ("better", "worse")
    if not directed(groups, metric):
        better, worse = "lower", "higher"
    axis.set_xlabel(f"← {better}      difference in {with_units(groups, metric)}      {worse} →")
