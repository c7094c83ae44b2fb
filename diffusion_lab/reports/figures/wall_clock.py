"""Figure of quality against training time, in which a sampler pays for its own cost.

Evaluations are left out of the time if all runs of the figure have recorded it without them (`training_seconds` in
timing.jsonl); otherwise the time of all of them includes evaluations, which the axis says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import (
    data_uri,
    label_bottom,
    line_style,
    log_if_wide,
    many,
    name_lines,
    panel_title,
    panels,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, Timed, only_training, time_of, with_direction
from diffusion_lab.reports.figures.base import Figure, over_seeds, seeds_text, shown

UNITS = ((5400.0, 3600.0, "hours"), (180.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))  # from, in seconds, name


class Line(NamedTuple):
    """One group: its place in the report, its seeds, and the means over seeds at the snapshots that all have."""

    index: int
    group: Group
    seeds: list[Timed]
    seconds: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def against_time(groups: Sequence[Group], metric: str) -> Figure | None:
    """The metric and the validation loss against training time; None if no curve has two snapshots with a time."""
    keys = list(dict.fromkeys([metric if "/" in metric else f"metrics/{metric}", VAL_LOSS]))
    alone = only_training([run for group in groups for run in shown(group)])
    drawn = {key: lines_of(groups, key, alone) for key in keys}
    drawn = {key: lines for key, lines in drawn.items() if any(len(line.seconds) > 1 for line in lines)}
    if not drawn:
        return None
    if many(len(groups)):
        drawn = dict([next(iter(drawn.items()))])
    time = "training time" if alone else "time, evaluations included"
    with style():
        image = _panels(groups, drawn, time) if many(len(groups)) else _over_each_other(groups, drawn, time)
    return Figure("Quality against training time", _caption(groups, alone, many(len(groups))), image)


def lines_of(groups: Sequence[Group], key: str, alone: bool) -> list[Line]:
    """The groups with a value and a time, each at the mean time of its seeds at a snapshot."""
    lines = []
    for i, group in enumerate(groups):
        seeds = [timed for run in shown(group) if (timed := time_of(run, key, alone)) is not None]
        values, times = over_seeds([seed.curve for seed in seeds]), over_seeds([seed.clock for seed in seeds])
        if values is not None and times is not None:
            lines.append(Line(i, group, seeds, times.mean, values.mean, values.low, values.high))
    return lines


def unit_of(longest: float) -> tuple[float, str]:
    """Seconds per unit of the axis, and its name."""
    return next((size, name) for least, size, name in UNITS if longest >= least)


def _over_each_other(groups: Sequence[Group], drawn: dict[str, list[Line]], time: str) -> str:
    figure, axes = panels(len(drawn), height=3.6)
    ends = []
    for axis, (key, lines) in zip(axes, drawn.items(), strict=True):
        size, unit = unit_of(max(float(seed.clock.values[-1]) for line in lines for seed in line.seeds))
        for line in lines:
            _draw(axis, line, size)
        log_if_wide(axis, [seed.curve.values for line in lines for seed in line.seeds])
        axis.set_xlim(left=0)
        axis.set_xlabel(f"{time}, {unit}")
        axis.set_title(_title(groups, key))
        ends.append([(float(line.mean[-1]), line.group.label, line_style(line.index).color) for line in lines])
    name_lines(figure, axes, ends)
    return data_uri(figure)


def _draw(axis, line: Line, size: float) -> None:
    """The seeds, mean and range of a group; `size` is the number of seconds in the axis's unit."""
    color, dash = line_style(line.index)
    for seed in line.seeds:
        axis.plot(seed.clock.values / size, seed.curve.values, color=color, linewidth=0.7, alpha=0.55)
    at, marker = line.seconds / size, "o" if len(line.seconds) <= 12 else None
    axis.plot(at, line.mean, color=color, linestyle=dash, marker=marker, markersize=3.5, label=line.group.label)
    axis.fill_between(at, line.low, line.high, color=color, alpha=0.15, linewidth=0)


def _panels(groups: Sequence[Group], drawn: dict[str, list[Line]], time: str) -> str:
    """One panel per group with the others in grey behind it, the first dotted."""
    ((key, lines),) = drawn.items()
    size, unit = unit_of(max(float(line.seconds[-1]) for line in lines))
    figure, axes = small_multiples(len(lines))
    for axis, own in zip(axes, lines, strict=True):
        for k, line in enumerate(lines):
            color, dash, width = ("#222222", ":", 1.2) if k == 0 else ("#CCCCCC", "-", 0.6)
            axis.plot(line.seconds / size, line.mean, color=color, linestyle=dash, linewidth=width)
        color = line_style(own.index).color
        axis.plot(own.seconds / size, own.mean, color=color)
        axis.fill_between(own.seconds / size, own.low, own.high, color=color, alpha=0.25, linewidth=0)
        axis.set_xlim(left=0)
        panel_title(axis, own.group.label, color, len(lines))
    log_if_wide(axes[0], [line.mean for line in lines])
    label_bottom(axes, f"{time}, {unit}")
    axes[0].set_ylabel(key.removeprefix("metrics/"))
    return data_uri(figure)


def _title(groups: Sequence[Group], key: str) -> str:
    return with_direction(groups, key.removeprefix("metrics/"))


def _caption(groups: Sequence[Group], alone: bool, in_panels: bool) -> str:
    lines = "Thick: mean over seeds at equal snapshots, at their mean time, shaded: lowest to highest, thin: seeds. "
    if in_panels:
        lines = "Coloured: mean over seeds, shaded: lowest to highest seed, dotted: the first group, grey: the others. "
    time = "The time is that of training alone, with what a sampler computes and without evaluations, "
    if not alone:
        time = "The time includes evaluations, because not all runs have recorded that of training alone; it is "
    return (
        f"{lines}{seeds_text(groups)}. {time}interpolated between its records. Compare only runs on the "
        "same machine without other load."
    )
