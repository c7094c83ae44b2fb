"""Figure of the cost: images per second, training time and memory of each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import data_uri, line_style, panels, row_names, style
from diffusion_lab.reports.comparison.cells import duration, number
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, seeds_text, shown
from diffusion_lab.runs.run import Run


def _gigabytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes / 1000


class _Kind(NamedTuple):
    """A cost: the heading of its panel, its value of a run, and how it is written."""

    title: str
    value: Callable[[Run], float | None]
    text: Callable[[float], str]


KINDS = (
    _Kind("images per second (higher is better)", lambda run: run.images_per_second, lambda value: number(value, 3)),
    _Kind("training time (lower is better)", lambda run: run.seconds, duration),
    _Kind("memory in GB (lower is better)", lambda run: _gigabytes(run.memory_mb), lambda value: number(value, 3)),
)


def cost(groups: Sequence[Group]) -> Figure | None:
    """Images per second, training time and, where it is recorded, memory."""
    measured = [group for group in groups if any(run.images_per_second for run in shown(group))]
    if not measured:
        return None
    with style():
        kinds = [kind for kind in KINDS if any(kind.value(run) is not None for g in measured for run in shown(g))]
        figure, axes = panels(len(kinds), height=0.75 + 0.33 * len(measured), sharey=True)
        for axis, kind in zip(axes, kinds, strict=True):
            _bars(axis, groups, measured, kind)
            axis.set_title(kind.title)
        row_names(axes[0], [group.label for group in measured])
        image = data_uri(figure)
    caption = (
        f"Bars: mean, dots: seeds; {seeds_text(measured)}. Training including validations and sample grids; compare "
        "only runs on the same machine without other load. Memory is the peak, of tensors on a GPU and of the whole "
        "process on a CPU."
    )
    return Figure("Cost", caption, image)


def _bars(axis, groups: Sequence[Group], measured: Sequence[Group], kind: _Kind) -> None:
    for row, group in enumerate(measured):
        numbers = [value for run in shown(group) if (value := kind.value(run)) is not None]
        if not numbers:
            continue
        mean = float(np.mean(numbers))
        color = line_style(groups.index(group)).color
        axis.barh(row, mean, height=0.62, color=color, alpha=0.75 if group.done else 0.3)
        axis.plot(numbers, [row] * len(numbers), "o", color="white", markeredgecolor="#333333", markersize=4)
        axis.annotate(
            kind.text(mean),
            (max(mean, *numbers), row),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color="#333333",
        )
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.margins(x=0.28)
    axis.set_xlim(left=0)
