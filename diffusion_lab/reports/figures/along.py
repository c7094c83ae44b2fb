"""Figure of the rows' ratios or differences to the baseline along a key, such as the budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from diffusion_lab.plotting import line_style, panels
from diffusion_lab.reports.comparison.along import Along, AlongRow
from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.figures.ratios import SHADE, frame, name_cut_lines, of_what, on_axis

APART = 0.035  # share of the distance of two values by which the intervals of two rows are moved apart


def along_figure(of: Along) -> Figure | None:
    """The size of each row at each value, with its interval; None for values that are not numbers above 0, or without
    rows."""
    if of.places is None or not of.rows:
        return None
    what = "Ratio" if of.scale == "ratio" else "Difference"
    count = {effect.n for row in of.rows for effect in row.effects if effect}
    seeds = " to ".join(str(n) for n in sorted({min(count), max(count)}))
    caption = f"{what} of {of.metric} to {of.base} at the same seed, n = {seeds}, against {of.key} (logarithmic axis)"
    if any(effect and effect.interval for row in of.rows for effect in row.effects):
        caption += "; bars: 95 % intervals for all rows at one value. Filled: better or worse"
    caption += ". Grey: equal within the margin."
    return Figure.drawn(f"{what} to {of.base} along {of.key}", caption, along_axis, of)


def along_axis(of: Along) -> Any:
    """Matplotlib's figure, for an `Along` with places and rows."""
    figure, (axis,) = panels(1, height=4.2)
    places = np.array(of.places)
    step = APART * float(np.diff(places).min())
    last = []
    for k, row in enumerate(of.rows):
        at = places + step * (k - (len(of.rows) - 1) / 2)
        last.append((_draw(axis, at, row, k), row.label, line_style(k + 1).color))
    drawn = [on_axis(effect, of.scale) for row in of.rows for effect in row.effects if effect]
    frame(axis, of.scale, drawn, max(of.band))
    _band(axis, of)
    axis.set_xticks(places, [f"{value:,}" for value in of.values])
    axis.minorticks_off()
    axis.set_xlabel(of.key)
    axis.set_title(of_what(of.scale, of.metric, of.base))
    name_cut_lines(figure, axis, last)
    return figure


def _draw(axis: Any, at: np.ndarray, row: AlongRow, k: int) -> float:
    """The line of a row; its last value."""
    color, dash = line_style(k + 1)  # the baseline has the first
    there = [(x, effect) for x, effect in zip(at, row.effects, strict=True) if effect]
    axis.plot([x for x, _ in there], [e.size for _, e in there], color=color, linestyle=dash, label=row.label)
    for x, effect in there:
        if effect.interval:
            axis.plot(
                [x, x], effect.interval, color=color, linewidth=2.4 if effect.decided else 1.3, solid_capstyle="butt"
            )
        face = color if effect.decided else "white"
        axis.plot(x, effect.size, "o", color=color, markerfacecolor=face, markersize=6, zorder=5)
    return there[-1][1].size


def _band(axis: Any, of: Along) -> None:
    """Grey where rows are equal, at each value as wide as there."""
    back = math.exp if of.scale == "ratio" else float
    edges = np.array(of.places)
    half = float(np.diff(edges).min()) / 2
    left, right = np.append(-np.inf, edges[1:] - half), np.append(edges[:-1] + half, np.inf)
    low, high = axis.get_xlim()
    for first, last, size in zip(left, right, of.band, strict=True):
        axis.fill_between([max(first, low), min(last, high)], back(-size), back(size), **SHADE)
    axis.set_xlim(low, high)
