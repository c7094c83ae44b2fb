"""Figures with a line or bar per row of a table: intervals, and what training cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.intervals import Interval
from diffusion_lab.plotting import line_style, panels, row_names
from diffusion_lab.progress import duration
from diffusion_lab.reports.comparison.cells import number
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, averaged_runs, seeds_text
from diffusion_lab.runs.run import Run
from diffusion_lab.verdicts import Word

FAR = 6.0  # means larger than this multiple of the median one are ignored for the axis limits
WIDE = 1.5  # so are interval ends farther from the means than this multiple of the median half width
BAND = 5.0  # the band is seen as a whole unless the axis would be longer than this multiple of what the rows need


def limits(present: Sequence[Interval]) -> tuple[float, float]:
    """Axis limits that include 0 and the intervals, except distant groups and the ends of very wide intervals."""
    apart = [abs(difference.mean) for difference in present if difference.mean]  # others repeat the baseline
    usual = FAR * np.median(apart or [0.0])
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


class IntervalLine(NamedTuple):
    """A line of `interval_lines`: its name, its difference if it has one, the text at its right, and its verdict."""

    name: str
    difference: Interval | None
    text: str
    word: Word

    @property
    def bold(self) -> bool:
        """Whether it is better or worse."""
        return self.word in ("better", "worse")

    @property
    def equal(self) -> bool:
        """Whether it is equal or identical."""
        return self.word in EQUAL_WORDS


def with_equality(text: str, word: Word) -> str:
    """The numbers of a line, followed by the word where it is equal."""
    return f"{text}  {word}" if word in EQUAL_WORDS else text


EQUAL_WORDS: tuple[Word, ...] = ("equal", "identical")
INK = "#333333"  # of all lines: a colour would be read as a group
EQUAL = "#BBBBBB"  # of the squares


def marks(within: str, words: Iterable[Word]) -> str:
    """What the marks of lines with these verdicts say, for a caption; empty if none has one."""
    found = set(words)
    said = ["filled and bold: better or worse"] * bool(found & {"better", "worse"})
    said += [f"square: equal, as the 90 % interval lies {within}"] * ("equal" in found)
    said += ["square: identical"] * (found & set(EQUAL_WORDS) == {"identical"})
    said += ["hollow: not decided"] * ("not decided" in found)
    return "; ".join(said).capitalize()


def interval_lines(lines: Sequence[IntervalLine], ends: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axis from `ends[0]` to `ends[1]` with a line for each difference, and a rule at 0."""
    figure, (axis,) = panels(1, height=0.9 + 0.31 * len(lines))
    axis.set_xlim(*ends)
    for place, line in enumerate(lines):
        if line.difference:
            _draw_interval(axis, place, line)
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


def _draw_interval(axis: Any, place: int, line: IntervalLine) -> None:
    interval = line.difference
    assert interval is not None
    mean, low, high = interval.mean, interval.low, interval.high
    left, right = axis.get_xlim()
    width = 2.4 if line.bold else 1.3
    if low is not None and high is not None:
        axis.plot(np.clip([low, high], left, right), [place] * 2, color=INK, linewidth=width, solid_capstyle="butt")
    beyond = [("<", left, min(mean, mean if low is None else low) < left)]
    beyond.append((">", right, max(mean, mean if high is None else high) > right))
    for marker, edge, is_beyond in beyond:
        if is_beyond:
            axis.plot(edge, place, marker, color=INK, markersize=7, clip_on=False, zorder=5)
    if left <= mean <= right:
        marker, face = ("s", EQUAL) if line.equal else ("D", INK if line.bold else "white")
        axis.plot(mean, place, marker, color=INK, markerfacecolor=face, markersize=6, zorder=5)


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
