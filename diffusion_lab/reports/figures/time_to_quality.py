"""Figure of the speed-up: smoothed curves of every seed, and from where to where each factor was read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diffusion_lab.plotting import data_uri, label_ends, line_style, log_axis, panels, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import rising, with_units
from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.pair.speedup import Course, smoothed
from diffusion_lab.reports.pair.speedup_of_runs import OfRuns, cell, in_images, in_seconds

MARK = "#222222"
AXES = {"images": ("images seen", in_images), "training time": ("training time, seconds", in_seconds)}


def speed_up(base: Group, own: Group, metric: str) -> Figure | None:
    """Curves against images, and against training time if it is recorded; None without a speed-up.

    Args:
        base: the baseline.
        own: the method.
        metric: an evaluation metric, or a logged key.
    """
    measured = {title: (label, of_runs(base, own, metric)) for title, (label, of_runs) in AXES.items()}
    measured = {title: (label, found) for title, (label, found) in measured.items() if found.found is not None}
    if not measured:
        return None
    with style():
        figure, axes = panels(len(measured), height=3.8)
        for axis, (title, (label, found)) in zip(axes, measured.items(), strict=True):
            _draw(axis, found, [base, own], metric)
            axis.set_xlabel(label)
            axis.set_title(f"factor of {title}: {cell(found.found) if found.found else ''}")
        axes[0].set_ylabel(with_units([base, own], metric))
        image = data_uri(figure)
    caption = (
        "Dots: snapshots, lines: the smoothed curves of each seed. A horizontal line begins where "
        f"{own.label} reaches the final value of {base.label} at the same seed, and ends where {base.label} has it; on "
        "this logarithmic axis its length is the factor. A dotted line: the value is not reached."
    )
    return Figure(f"Speed-up over {base.label}", caption, image)


def _draw(axis, measured: OfRuns, groups: Sequence[Group], metric: str) -> None:
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


def _mark(axis, measured: OfRuns, baselines: Sequence[Course]) -> None:
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
