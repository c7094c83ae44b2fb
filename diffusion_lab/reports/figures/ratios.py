"""Figures of the rows' ratios or differences to the baseline: with their intervals, and over training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from diffusion_lab.intervals import ESTIMANDS, Interval
from diffusion_lab.plotting import (
    SHORT_NAME,
    images_axis,
    log_axis,
    many,
    name_lines,
    panels,
)
from diffusion_lab.reports.comparison.cells import decimals
from diffusion_lab.reports.comparison.effects import effect_text, no_effect
from diffusion_lab.reports.comparison.evidence import BySeed
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import directed, rising, with_units
from diffusion_lab.reports.comparison.rows import UNJUDGED, Row, Table
from diffusion_lab.reports.figures.base import GREY, Figure, GroupMean, panel_per_group, seeds_text
from diffusion_lab.reports.figures.table_rows import (
    IntervalLine,
    interval_lines,
    limits,
    marks,
    with_band,
    with_equality,
)
from diffusion_lab.verdicts import CLAIM_SEEDS, Scale, Verdict, Word, judge

SHADE = {"color": "#888888", "alpha": 0.15, "linewidth": 0, "zorder": 0}
# Between ticks of ratios near 1.
STEPS = (1.0, 0.5, 0.25, *(digit / 10**k for k in range(1, 6) for digit in (1, 0.5, 0.2)))
ROUND = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))  # digits of ticks of ratios far from it
FEWEST, MOST = 3, 9  # ticks


def effects(table: Table) -> Figure | None:
    """Ratios on a logarithmic axis, or differences, with their simultaneous intervals and the band of equality; those
    that are better or worse are filled and bold."""
    compared = [row for row in table.rows if row.effect]
    if not compared:
        return None
    ends = _extent(compared, table)
    shown = 0 < table.band < max(map(abs, ends))  # else the band would be all there is
    what, none = ("Ratio", "1") if table.scale == "ratio" else ("Difference", "0")
    mean = "geometric means" if table.scale == "ratio" else "means"
    caption = (
        f"{table.metric} {ESTIMANDS[table.estimand]}, {table.scale} to {table.base.label} at the same seed: diamonds "
        f"are {mean} over the common seeds ({_seeds(compared)}), dots single seeds"
    )
    if any(row.has_interval for row in compared):
        caption += ", lines 95 % intervals for all rows together"
        caption += f"; that of what is better or worse excludes {none}" * any(row.bold for row in compared)
        caption += f". {said}" if (said := marks(table.question.within, [_word(row) for row in compared])) else ""
    caption += ". An arrow at the edge points to values beyond it."
    if shown:
        caption += f" Grey: equal {table.question.within}."
    return Figure.drawn(f"{what} to {_base(table)}", caption, _lines, table, ends, shown)


def _seeds(compared: Sequence[Row]) -> str:
    """`5 seeds each`, of those that a row and the baseline have."""
    numbers = {row.group.label: row.effect.n for row in compared if row.effect}
    return seeds_text([row.group for row in compared], lambda group: range(numbers[group.label]))


def _extent(rows: Sequence[Row], table: Table) -> tuple[float, float]:
    """Limits of the axis, which hold every row that is decided."""
    low, high = with_band(limits([on_axis(row.effect, table.scale) for row in rows if row.effect]), table.band)
    decided = [on_axis(row.effect, table.scale) for row in rows if row.effect and row.bold]
    margin = 0.06 * (high - low)
    low = min([low, *(one.low - margin for one in decided if one.low is not None)])
    return low, max([high, *(one.high + margin for one in decided if one.high is not None)])


def on_axis(effect: Verdict, scale: Scale) -> Interval:
    """As it is drawn: of a ratio, its logarithm; without ends where the table has none."""
    onto = math.log if scale == "ratio" else float
    low, high = map(onto, effect.interval) if effect.interval else (None, None)
    return Interval(onto(effect.size), None, low, high, effect.n)


def _lines(table: Table, ends: tuple[float, float], shown: bool) -> Any:
    """A line per row, in the table's order, with its numbers at the right edge."""
    groups, scale = [row.group for row in table.rows], table.scale
    places = decimals([row.metric.mean for row in table.rows if row.metric])
    lines = [_line(row, table, places) for row in table.rows]
    figure, axis = interval_lines(lines, ends)
    if shown:
        axis.axvspan(*np.clip([-table.band, table.band], *ends), **SHADE)
    onto = np.log if scale == "ratio" else np.asarray
    base = table.deciding[table.rows.index(next(row for row in table.rows if row.is_baseline))]
    for place, (row, own) in enumerate(zip(table.rows, table.deciding, strict=True)):
        if row.effect:
            common = sorted(own.keys() & base.keys())
            dots = onto([own[seed] for seed in common]) - onto([base[seed] for seed in common])
            axis.plot(dots, [place] * len(dots), "o", color="#555555", markersize=2.2, alpha=0.6, zorder=4)
    axis.set_xlim(*ends)
    if scale == "ratio":
        logarithms_as_ratios(axis, ends)
    better = ("higher" if rising(groups, table.metric) else "lower") if directed(groups, table.metric) else ""
    axis.set_xlabel(sides(of_what(scale, with_units(groups, table.metric), _base(table)), better))
    return figure


def _base(table: Table) -> str:
    """The baseline's name, if it is short."""
    return table.base.label if len(table.base.label) <= SHORT_NAME else "the baseline"


def sides(label: str, better: str) -> str:
    """The label of an x axis of effects with its better side; `better` is lower, higher, or "" if neither is."""
    left, right = {"lower": ("better", "worse"), "higher": ("worse", "better")}.get(better, ("lower", "higher"))
    return f"← {left}      {label}      {right} →"


def _line(row: Row, table: Table, places: int) -> IntervalLine:
    if row.effect is None:
        return IntervalLine(row.group.label, None, row.unpaired, "no claim")
    text = effect_text(row.effect, table.scale, places)
    word = _word(row)
    return IntervalLine(row.group.label, on_axis(row.effect, table.scale), with_equality(text, word), word)


def _word(row: Row) -> Word:
    return row.verdict.word if row.verdict else "no claim"


def logarithms_as_ratios(axis: Any, ends: tuple[float, float]) -> None:
    """Label an x axis of logarithms between these ends with the ratios."""
    ticks = ratio_ticks(*np.exp(ends))
    axis.set_xticks(np.log(ticks), [f"{tick:g}" for tick in ticks])


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios from `low` to `high`, of which 1 is one if it lies between: at equal steps if they are near 1."""
    for step in STEPS if high / low < 4 else ():
        ticks = [round(k * step, 9) for k in range(math.ceil(low / step), math.floor(high / step) + 1) if k > 0]
        if FEWEST <= len(ticks) <= MOST:
            return ticks
    made = [[digit * 10.0**k for k in range(-9, 10) for digit in digits] for digits in ROUND]
    within = [[tick for tick in ticks if low <= tick <= high] for ticks in made]
    return next((ticks for ticks in within if len(ticks) <= MOST), within[-1])


def effects_over_training(table: Table, groups: Sequence[Group] | None = None) -> Figure | None:
    """The effects at each snapshot that all runs have, with their intervals, which hold for all rows; None without two
    such snapshots. Drawn are those of `groups`, by default all."""
    drawn = {id(group): k for k, group in enumerate(groups or [row.group for row in table.rows])}
    images = table.evidence.snapshots
    place = next((i for i, row in enumerate(table.rows) if row.is_baseline), 0)
    rows = [i for i, row in enumerate(table.rows) if row.effect]
    if not images or not rows:
        return None
    found = [_at(table, snapshot, [place, *rows]) for snapshot in images]
    judged = {i: table.rows[i].silent not in UNJUDGED for i in rows}
    places = {i: np.array([_ends(one[k], judged[i]) for one in found]).T for k, i in enumerate(rows, 1)}
    rows = [i for i in rows if id(table.rows[i].group) in drawn]
    groups = [table.rows[i].group for i in rows]
    at = np.array(images)
    curves = [GroupMean(drawn[id(group)], group, at, *places[i]) for i, group in zip(rows, groups, strict=True)]
    if not curves:
        return None
    what = "Ratio" if table.scale == "ratio" else "Difference"
    enough = any(row.effect.n >= CLAIM_SEEDS for row in table.rows if row.effect and row.silent not in UNJUDGED)
    caption = f"{table.scale.capitalize()} of {table.metric} to that of {table.base.label} at equal images and seeds"
    caption += f" ({_seeds([table.rows[i] for i in rows])})"
    caption += ", shaded: 95 % interval for all rows together, at each snapshot by itself." if enough else "."
    caption += f" Grey: equal {table.question.within}."
    return Figure.drawn(f"{what} over training", caption, _panels if many(len(rows)) else _axis, table, curves)


def _at(table: Table, images: int, rows: Sequence[int]) -> list[Verdict | None]:
    """The effects of some rows, of which the first is the baseline, at one snapshot."""
    values: list[BySeed] = [
        {seed: one[images] for seed, one in table.evidence.courses[i].items() if images in one} for i in rows
    ]
    return judge(values, table.scale, None, table.question.margin)


def _ends(effect: Verdict | None, judged: bool) -> tuple[float, float, float]:
    """Size and interval; without one, and of a row that is not judged, the size alone."""
    assert effect is not None
    return effect.size, *((judged and effect.interval) or (effect.size, effect.size))


def _axis(table: Table, curves: Sequence[GroupMean]) -> Any:
    """All rows over each other."""
    figure, (axis,) = panels(1, height=3.8)
    for curve in curves:
        curve.draw(axis, marked=math.inf)
    _frame(table, axis, curves)
    images_axis(axis)
    label = with_units([row.group for row in table.rows], table.metric)
    axis.set_title(of_what(table.scale, label, table.base.label))
    name_cut_lines(figure, axis, [curve.end for curve in curves])
    return figure


def _panels(table: Table, curves: Sequence[GroupMean]) -> Any:
    """A panel per row, with the others in grey behind it."""

    def draw(axis: Any, k: int) -> None:
        for other in curves:
            axis.plot(other.x, other.mean, color=GREY, linewidth=0.6)
        curves[k].draw(axis, marked=math.inf)
        images_axis(axis, len(curves))

    label = of_what(table.scale, with_units([row.group for row in table.rows], table.metric))
    figure, axes = panel_per_group(curves, draw, "images seen", label)
    for axis in axes:
        _frame(table, axis, curves)
    return figure


def of_what(scale: Scale, what: str, base: str = "") -> str:
    """`ratio of fd1k_digits to uniform`, `difference in precision from uniform`; both also without the baseline."""
    if scale == "ratio":
        return f"ratio of {what}" + f" to {base}" * bool(base)
    return f"difference in {what}" + f" from {base}" * bool(base)


def _frame(table: Table, axis: Any, curves: Sequence[GroupMean]) -> None:
    onto, back = (np.log, np.exp) if table.scale == "ratio" else (np.asarray, np.asarray)
    drawn = [one for curve in curves for one in zip(*map(onto, (curve.mean, curve.low, curve.high)), strict=True)]
    frame(axis, table.scale, [Interval(size, None, low, high, CLAIM_SEEDS) for size, low, high in drawn], table.band)
    axis.axhspan(*back(np.array([-table.band, table.band])), **SHADE)


def name_cut_lines(figure: Any, axis: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """`name_lines` in one panel; the name of a line that is cut stands at the edge."""
    low, high = axis.get_ylim()
    name_lines(figure, [axis], [[(min(max(y, low), high), name, color) for y, name, color in ends]])


def frame(axis: Any, scale: Scale, found: Sequence[Interval], band: float) -> None:
    """The rule of no effect, and an axis on which wide intervals are cut; one of ratios holds all their means.

    Args:
        axis: effects upwards.
        scale: ratios have a logarithmic axis.
        found: what is drawn, as of `on_axis`.
        band: widest half width of the band of equality, on the same scale.
    """
    low, high = with_band(limits(found), band)
    if scale == "ratio":  # a logarithmic axis has room for all of them
        sizes, margin = [one.mean for one in found], 0.06 * (high - low)
        low, high = math.exp(min(low, min(sizes) - margin)), math.exp(max(high, max(sizes) + margin))
    axis.axhline(no_effect(scale), color="#222222", linewidth=1, zorder=1)
    axis.set_ylim(low, high)
    if scale == "ratio":
        log_axis(axis)
        ticks = ratio_ticks(low, high)
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
