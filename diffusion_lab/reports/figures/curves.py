"""Figures of quality: a metric and the validation loss against images seen and training time, and the speed-up in both;
and of any other number that runs have logged.

Against training time, without evaluations (`training_seconds` in timing.jsonl), a sampler pays for its own cost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.plotting import images_axis, label_ends, line_style, log_axis, log_if_wide, many, name_lines, panels
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.hours import device_of
from diffusion_lab.reports.comparison.metrics import (
    VAL_LOSS,
    Timed,
    rising,
    time_of,
    with_direction,
    with_units,
)
from diffusion_lab.reports.comparison.rows import is_loss, moves_a_loss
from diffusion_lab.reports.figures.base import (
    DOTS,
    GREY,
    Figure,
    GroupMean,
    averaged_runs,
    group_means,
    over_seeds,
    panel_per_group,
    seeds_text,
)
from diffusion_lab.reports.pair.speedup import MetricCurve, smoothed
from diffusion_lab.reports.pair.speedup_of_runs import RunsSpeedUp, cell, in_images, in_seconds
from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.names import metric_key

UNITS = ((5400.0, 3600.0, "hours"), (180.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))  # from, in seconds, name
AXES = {"images": ("images seen", in_images), "training time": ("training time, seconds", in_seconds)}  # of factors
MARK = "#222222"  # of factors
# Keys, and beginnings of keys, that are shown elsewhere, or are the same in all runs of a method.
ELSEWHERE = re.compile(
    "epoch|images|step|optim/(beta1|lr)|train/loss(_q[0-3]|_t|_generator|_discriminator)?|train/judged_(real|fake)|"
    "val/loss(_t)?|metrics/.*|prediction/(head|weight)_.*|sampler/(drawn|p|objective)"
)
MOST = 4  # panels of other numbers
NAME = re.compile(r"[\w./ -]{1,60}")  # of a key that can be a title
PANELS = "Coloured: mean over seeds, shaded: lowest to highest seed, dotted: {}, grey: {}."


def quality_over_training(groups: Sequence[Group], metric: str) -> Figure | None:
    """The metric and the validation loss against images seen; for many groups only one of the two."""
    return _course(groups, _keys(metric), "Quality against images seen")


def other_numbers(groups: Sequence[Group]) -> Figure | None:
    """What no other figure and no metric shows, such as a number that your own callback logs; at most `MOST`, those
    with a curve first, and the names of the others."""
    logged = {key for group in groups for run in averaged_runs(group) for key in run.keys("")}
    numbers = [key for key in sorted(logged) if NAME.fullmatch(key) and not ELSEWHERE.fullmatch(key)]
    numbers = [key for key in numbers if all(one.values.ndim == 1 for group in groups for one in _curves(group, key))]
    numbers.sort(key=lambda key: not _is_curve(groups, key))
    drawn = _drawn_keys(groups, numbers[:MOST])
    figure = _course(groups, drawn, "Other numbers against images seen")
    others = [key for key in numbers if key not in drawn]
    if figure is None or not others:
        return figure
    return figure._replace(caption=f"{figure.caption} Also logged: {', '.join(others)}.")


def _is_curve(groups: Sequence[Group], key: str) -> bool:
    return any(len(curve.steps) > 1 for group in groups for curve in _curves(group, key))


def _drawn_keys(groups: Sequence[Group], keys: Sequence[str]) -> list[str]:
    """Those that have a panel: all that have a curve, else all that have a value; of many groups, which have a panel
    each, the first with a mean over seeds."""
    keys = [key for key in keys if any(_curves(group, key) for group in groups)]
    keys = [key for key in keys if _is_curve(groups, key)] or keys  # points show less than the table beside a curve
    if not many(len(groups)):
        return keys
    return [key for key in keys if any(len(line.x) > 1 for line in _lines(groups, key))][:1]


def _course(groups: Sequence[Group], keys: Sequence[str], title: str) -> Figure | None:
    keys = _drawn_keys(groups, keys)
    if not keys:
        return None
    lines = _lines(groups, keys[0]) if many(len(groups)) else []
    if many(len(lines)):
        how = f"{_direction(groups, keys[0])}. {PANELS.format(lines[0].group.label, 'the other groups')}"
        caption = f"{how} {seeds_text([line.group for line in lines])}, common axes."
    else:
        caption = (
            "Thick: mean over seeds, shaded: lowest to highest seed, thin: single seeds (dashed where a run is not "
            f"finished). {seeds_text(groups)}."
        )
    if VAL_LOSS in keys:
        caption += (
            " The validation loss is unweighted, on fixed images, timesteps and noise. Between runs with different "
            "samplers or weightings it shows where in t they trained, not which samples are better; runs with "
            "different predictions cannot be compared by it."
        )
    if many(len(lines)):
        return Figure.drawn(title, caption, _line_panels, lines, keys[0], "images seen")
    return Figure.drawn(title, caption, _course_lines, groups, keys)


def _lines(groups: Sequence[Group], key: str) -> list[GroupMean]:
    """The groups that have a mean over seeds."""
    return group_means(groups, lambda group: _curves(group, key))


def _curves(group: Group, key: str) -> list[Curve]:
    """Non-empty curves of the runs over which the mean is taken."""
    return [curve for curve in (run.curve(key) for run in averaged_runs(group)) if len(curve.steps)]


def _course_lines(groups: Sequence[Group], keys: Sequence[str]) -> Any:
    """All groups over each other, one panel per key."""
    figure, axes = panels(len(keys), height=3.6)
    ends = []
    for axis, key in zip(axes, keys, strict=True):
        lines = {line.index: line for line in _lines(groups, key)}
        for i, group in enumerate(groups):
            color, dash = line_style(i)
            for run in group.started:
                curve, line = run.curve(key), dash if run.status == "done" else (0, (2, 2))
                axis.plot(curve.images, curve.values, color=color, linestyle=line, linewidth=0.7, alpha=0.55)
            if i in lines:
                lines[i].draw(axis)
        _log_if_wide(axis, groups, key, [run.curve(key).values for group in groups for run in group.started])
        images_axis(axis)
        axis.set_title(_direction(groups, key))
        ends.append([line.end for line in lines.values()])
    name_lines(figure, axes, ends)
    return figure


def _line_panels(lines: Sequence[GroupMean], key: str, below: str, size: float | None = None) -> Any:
    """One panel per group, with the others in grey behind it and the first dotted; `size` is the unit of x in seconds,
    None for images."""
    lines = lines if size is None else [line._replace(x=line.x / size) for line in lines]

    def draw(axis: Any, k: int) -> None:
        for other, line in enumerate(lines):
            color, dash, width, order = ("#222222", ":", 1.2, 3) if other == 0 else (GREY, "-", 0.6, 2)
            axis.plot(line.x, line.mean, color=color, linestyle=dash, linewidth=width, zorder=order)
        own, color = lines[k], line_style(lines[k].index).color
        marker = "o" if len(own.x) <= DOTS else None
        axis.plot(own.x, own.mean, color=color, marker=marker, markersize=2.5, zorder=4)
        axis.fill_between(own.x, own.low, own.high, color=color, alpha=0.25, linewidth=0)
        if size is None:
            images_axis(axis, len(lines))
        axis.set_xlim(left=0)

    figure, axes = panel_per_group(lines, draw, below, _name(key))
    _log_if_wide(axes[0], [line.group for line in lines], key, [line.mean for line in lines])
    return figure


class Clocked(NamedTuple):
    """A line at the mean time of its seeds, in seconds, and the seeds."""

    line: GroupMean
    seeds: list[Timed]


def against_time(groups: Sequence[Group], metric: str) -> Figure | None:
    """The metric and the validation loss against training time; None if no curve has two points with a time, or the
    runs are of a CPU and a GPU, whose times show the machine."""
    if len({device_of(run) for group in groups for run in averaged_runs(group)} - {""}) > 1:
        return None
    drawn = {key: clocked(groups, key) for key in _keys(metric)}
    drawn = {key: found for key, found in drawn.items() if any(len(one.line.x) > 1 for one in found)}
    if not drawn:
        return None
    in_panels = many(len(groups))
    how = "Thick: mean over seeds at equal steps, at their mean time, shaded: lowest to highest, thin: seeds."
    shown = [one.line.group for one in next(iter(drawn.values()))] if in_panels else groups
    how = PANELS.format(shown[0].label, "the others") if in_panels else how
    caption = (
        f"{how} {seeds_text(shown)}. The time is that of training alone, with what a sampler computes and without "
        "evaluations, interpolated between its records. Compare only runs on the same machine without other load."
    )
    picture = (_time_panels, *next(iter(drawn.items()))) if in_panels else (_time_lines, groups, drawn)
    return Figure.drawn("Quality against training time", caption, *picture)


def clocked(groups: Sequence[Group], key: str) -> list[Clocked]:
    """The groups with a value and a time, each at the mean time of its seeds at a step."""
    found = []
    for i, group in enumerate(groups):
        seeds = [timed for run in averaged_runs(group) if (timed := time_of(run, key)) is not None]
        values, times = over_seeds([seed.curve for seed in seeds]), over_seeds([seed.clock for seed in seeds])
        if values is not None and times is not None:
            found.append(Clocked(GroupMean(i, group, times.mean, values.mean, values.low, values.high), seeds))
    return found


def unit_of(longest: float) -> tuple[float, str]:
    """Seconds per unit of the axis, and its name."""
    return next((size, name) for least, size, name in UNITS if longest >= least)


def _time_lines(groups: Sequence[Group], drawn: dict[str, list[Clocked]]) -> Any:
    figure, axes = panels(len(drawn), height=3.6)
    for axis, (key, found) in zip(axes, drawn.items(), strict=True):
        size, unit = unit_of(max(float(seed.clock.values[-1]) for one in found for seed in one.seeds))
        for line, seeds in found:
            for seed in seeds:
                color = line_style(line.index).color
                axis.plot(seed.clock.values / size, seed.curve.values, color=color, linewidth=0.7, alpha=0.55)
            line._replace(x=line.x / size).draw(axis)
        _log_if_wide(axis, groups, key, [seed.curve.values for one in found for seed in one.seeds])
        axis.set_xlim(left=0)
        axis.set_xlabel(f"training time, {unit}")
        axis.set_title(_direction(groups, key))
    name_lines(figure, axes, [[one.line.end for one in found] for found in drawn.values()])
    return figure


def _time_panels(key: str, found: Sequence[Clocked]) -> Any:
    lines = [one.line for one in found]
    size, unit = unit_of(max(float(line.x[-1]) for line in lines))
    return _line_panels(lines, key, f"training time, {unit}", size)


def _keys(metric: str) -> list[str]:
    """The logged keys of the metric and of the validation loss."""
    return list(dict.fromkeys([metric_key(metric), VAL_LOSS]))


def _name(key: str) -> str:
    return key.removeprefix("metrics/")


def _direction(groups: Sequence[Group], key: str) -> str:
    """A key with the side that is better; of a loss only if nothing between the groups moves it."""
    if is_loss(key) and any(moves_a_loss(group, groups[0]) for group in groups):
        return f"{key} (not comparable between these rows)"
    if not (
        is_loss(key) or key.startswith("metrics/") or any(run.better(key) for group in groups for run in group.runs)
    ):
        return with_units(groups, key)
    return with_direction(groups, _name(key))


def _log_if_wide(axis: Any, groups: Sequence[Group], key: str, numbers: Sequence[np.ndarray]) -> None:
    """A logarithmic axis where the range is wide; of what is compared by ratios, already from a factor of 3 on."""
    by_ratio = any(run.compared_by(_name(key)) == "ratio" for group in groups for run in group.runs)
    log_if_wide(axis, numbers, 3.0 if by_ratio else 20.0)


def speed_up(base: Group, own: Group, metric: str) -> Figure | None:
    """Curves against images, and against training time if it is recorded; None without a speed-up."""
    measured = {title: (label, of_runs(base, own, metric)) for title, (label, of_runs) in AXES.items()}
    measured = {title: (label, found) for title, (label, found) in measured.items() if found.found is not None}
    if not measured:
        return None
    caption = (
        "Dots: evaluations, lines: the smoothed curves of each seed. A horizontal line begins where "
        f"{own.label} reaches the final value of {base.label} at the same seed, and ends where {base.label} has it; on "
        "this logarithmic axis its length is the factor. A dotted line: the value is not reached."
    )
    return Figure.drawn(f"Speed-up over {base.label}", caption, _speed_up_panels, measured, [base, own], metric)


def _speed_up_panels(measured: dict[str, tuple[str, RunsSpeedUp]], groups: Sequence[Group], metric: str) -> Any:
    figure, axes = panels(len(measured), height=3.8)
    for axis, (title, (label, found)) in zip(axes, measured.items(), strict=True):
        _draw_factors(axis, found, groups, metric)
        axis.set_xlabel(label)
        axis.set_title(f"factor of {title}: {cell(found.found) if found.found else ''}")
    axes[0].set_ylabel(with_units(groups, metric))
    return figure


def _draw_factors(axis, measured: RunsSpeedUp, groups: Sequence[Group], metric: str) -> None:
    better = "higher" if rising(groups, metric) else "lower"
    curves = smoothed([course for pair in measured.courses for course in pair], better)
    ends: dict[int, list[float]] = {0: [], 1: []}
    for k, curve in enumerate(curves):
        color, course = line_style(k % 2).color, measured.courses[k // 2][k % 2]
        axis.plot(course.x, course.values, "o", color=color, markersize=2.5, alpha=0.5)
        axis.plot(curve.smoothed.x, curve.smoothed.values, color=color, linewidth=1.3, alpha=0.9)
        ends[k % 2].append(float(curve.smoothed.values[-1]))
    axis.set_xscale("log")
    if curves[0].logarithm:
        log_axis(axis)
    _mark(axis, measured, [curve.smoothed for curve in curves[::2]])
    _ticks(axis)
    labels = [(float(np.mean(ends[i])), group.label, line_style(i).color) for i, group in enumerate(groups)]
    label_ends(axis, labels)


def _mark(axis, measured: RunsSpeedUp, baselines: Sequence[MetricCurve]) -> None:
    """The horizontal line of each factor."""
    factors = measured.found.factors if measured.found is not None else ()
    for one, base in zip(factors, baselines, strict=True):
        end, value = base.x[-1], base.values[-1]
        dash = ":" if one.bound == "at most" else "-"
        axis.plot([end / one.value, end], [value] * 2, color=MARK, linestyle=dash, marker="|", markersize=7)


def _ticks(axis) -> None:
    """Ticks at 1, 2 and 5 with short numbers: 20k, 1M."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_minor_formatter(NullFormatter())
