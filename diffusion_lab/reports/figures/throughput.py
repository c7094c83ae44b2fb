"""Figure of the cost: images per second and training time of each group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diffusion_lab.plotting import data_uri, line_style, panels, row_names, style
from diffusion_lab.reports.cells import duration, number
from diffusion_lab.reports.figures.base import Figure, seeds_text, shown
from diffusion_lab.reports.groups import Group


def cost(groups: Sequence[Group]) -> Figure | None:
    """Images per second and training time."""
    measured = [group for group in groups if any(run.images_per_second for run in shown(group))]
    if not measured:
        return None
    with style():
        figure, axes = panels(2, height=0.75 + 0.33 * len(measured), sharey=True)
        titles = ("images per second (higher is better)", "training time (lower is better)")
        values = (lambda run: run.images_per_second, lambda run: run.seconds)
        texts = (lambda value: number(value, 3), duration)
        for axis, title, value, text in zip(axes, titles, values, texts, strict=True):
            _bars(axis, groups, measured, value, text)
            axis.set_title(title)
        row_names(axes[0], [group.label for group in measured])
        image = data_uri(figure)
    caption = (
        f"Bars: mean, dots: seeds; {seeds_text(measured)}. Training including validations and sample grids; compare "
        "only runs on the same machine without other load."
    )
    return Figure("Cost", caption, image)


def _bars(axis, groups, measured, value, text) -> None:
    for row, group in enumerate(measured):
        numbers = [value(run) for run in shown(group) if value(run) is not None]
        if not numbers:
            continue
        mean = float(np.mean(numbers))
        color = line_style(groups.index(group)).color
        axis.barh(row, mean, height=0.62, color=color, alpha=0.75 if group.done else 0.3)
        axis.plot(numbers, [row] * len(numbers), "o", color="white", markeredgecolor="#333333", markersize=4)
        axis.annotate(
            text(mean),
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
