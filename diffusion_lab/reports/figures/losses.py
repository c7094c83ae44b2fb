"""Figures of the loss over timesteps: at the end, and during training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import (
    SHORT_NAME,
    columns_of,
    data_uri,
    images_axis,
    label_bottom,
    label_ends,
    line_style,
    log_axis,
    log_if_wide,
    many,
    name_lines,
    panel_title,
    panels,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, ruler
from diffusion_lab.reports.figures.base import Figure, Mean, over_seeds, seeds_text
from diffusion_lab.reports.figures.timestep_bins import TimeAxis, edges, measured

LOSS_BY_T = "val/loss_t"
SHOWN_BINS = 5  # timesteps whose course is drawn


def loss_by_timestep(groups: Sequence[Group]) -> Figure | None:
    """Validation loss over timesteps at the end, and its ratio to the first group's."""
    lasts = [(i, group, last_losses(group)) for i, group in enumerate(groups)]
    present = [_Present(i, group, last) for i, group, last in lasts if last is not None]
    if not present:
        return None
    first = present[0].last
    alike = [p for p in present if ruler(p.group, VAL_LOSS) == ruler(present[0].group, VAL_LOSS)]
    same = [p for p in alike if p.last.images == first.images and p.last.loss.shape == first.loss.shape]
    with style():
        image = _ratio_panels(same) if many(len(same)) else _loss_lines(present, same)
    ratios = f" Coloured: ratio to that of {present[0].group.label}; grey: the other groups." if many(len(same)) else ""
    caption = (
        "Unweighted loss on held-out images by range of timesteps, with averaged weights where the run keeps them, at "
        f"the last validation; mean over seeds ({loss_seeds(groups)}). t = 0 is the least noise.{ratios}"
    )
    if empty := max(int(np.isnan(p.last.loss).sum()) for p in present):
        caption += (
            f" {empty} of {len(first.loss)} ranges have no validation image and no point; more images "
            "(dataset.val_images) or fewer ranges (callbacks.validation.bins) fill them."
        )
    if len(alike) < len(present):
        others = ", ".join(p.group.label for p in present if p not in alike)
        caption += f" No ratio for groups with another prediction or schedule: {others}."
    if len({last.images for _, _, last in present}) > 1:
        seen = ", ".join(f"{group.label} {last.images}" for _, group, last in present)
        caption += f" The groups have seen different numbers of images ({seen}); ratios are given for equal ones only."
    return Figure("Loss over timesteps", caption, image)


def _loss_lines(present: Sequence[_Present], same: Sequence[_Present]) -> str:
    """The loss, and its ratio to the first group's: all groups over each other."""
    figure, axes = panels(1 if len(same) < 2 else 2, height=3.6)
    time = TimeAxis.of([group for _, group, _ in present])
    for i, group, last in present:
        _over_t(axes[0], group, last.loss, i, time)
    axes[0].set_title("validation loss")
    log_axis(axes[0])
    ends = [[(_end(last.loss), group.label, line_style(i).color) for i, group, last in present]]
    if len(same) > 1:
        base = same[0].last.loss
        for i, group, last in same:
            _over_t(axes[1], group, last.loss / base, i, time)
        name = same[0].group.label
        axes[1].set_title(f"its ratio to {name if len(name) <= SHORT_NAME else 'the first of the table'}")
        ends.append([(_end(last.loss / base), group.label, line_style(i).color) for i, group, last in same])
    name_lines(figure, axes, ends)
    return data_uri(figure)


def _ratio_panels(same: Sequence[_Present]) -> str:
    """The ratio to the first group's loss, one panel per group, with the others in grey behind it."""
    figure, axes = small_multiples(len(same))
    base = same[0].last.loss
    for axis, own in zip(axes, same, strict=True):
        for _, group, last in same:
            at = edges(group, len(base))
            axis.plot(*measured((at[:-1] + at[1:]) / 2, last.loss / base), color="#CCCCCC", linewidth=0.6)
        at, color = edges(own.group, len(base)), line_style(own.index).color
        axis.plot(*measured((at[:-1] + at[1:]) / 2, own.last.loss / base), color=color)
        panel_title(axis, own.group.label, color, len(same))
    log_if_wide(axes[0], [last.loss / base for _, _, last in same], ratio=4)
    label_bottom(axes, "timestep t")
    axes[0].set_ylabel("loss ratio")
    return data_uri(figure)


def loss_course(groups: Sequence[Group]) -> Figure | None:
    """Validation loss against images seen, at a few ranges of timesteps, one panel per group."""
    means = [(group, over_seeds([run.curve(LOSS_BY_T) for run in group.comparable(LOSS_BY_T)])) for group in groups]
    means = [(group, mean) for group, mean in means if mean is not None and len(mean.images) > 1]
    if not means:
        return None
    with style():
        figure, axes = small_multiples(len(means))
        columns = columns_of(len(means))
        ends_of = []
        for axis, (group, mean) in zip(axes, means, strict=True):
            ends_of.append(_draw_loss_course(axis, mean, edges(group, mean.mean.shape[1]), len(means)))
            panel_title(axis, group.label, line_style(groups.index(group)).color, len(means))
        log_axis(axes[0])
        for k, (axis, ends) in enumerate(zip(axes, ends_of, strict=True)):
            if k % columns == columns - 1:
                label_ends(axis, ends, size=8.5)
        label_bottom(axes, "images seen")
        axes[0].set_ylabel("validation loss")
        image = data_uri(figure)
    caption = (
        "The same loss during training, at ranges of timesteps from the least noise (dark) to the most (light); their "
        f"middle stands at the right. Mean over seeds ({loss_seeds(groups)}), common axes."
    )
    return Figure("Loss over timesteps during training", caption, image)


class Last(NamedTuple):
    """The last validation that all seeds of a group have: images seen, and the mean loss (bins,)."""

    images: int
    loss: np.ndarray


class _Present(NamedTuple):
    """A group that has validated, and its place in the report."""

    index: int
    group: Group
    last: Last


def last_losses(group: Group) -> Last | None:
    """The last validation by range of timesteps that all seeds of a group have; None if there is none."""
    mean = over_seeds([run.curve(LOSS_BY_T) for run in group.comparable(LOSS_BY_T)])
    return Last(int(mean.images[-1]), mean.mean[-1]) if mean is not None and mean.mean.ndim == 2 else None


def loss_seeds(groups: Sequence[Group]) -> str:
    """`2 seeds each` of the groups that have validated."""
    present = [group for group in groups if group.comparable(LOSS_BY_T)]
    return seeds_text(present, lambda group: group.comparable(LOSS_BY_T))


def _end(values: np.ndarray) -> float:
    """The last value of a line; NaN without one."""
    return float(values[np.isfinite(values)][-1]) if np.isfinite(values).any() else math.nan


def _over_t(axis, group: Group, values: np.ndarray, index: int, time: TimeAxis) -> None:
    color, dash = line_style(index)
    at = time.edges(group, len(values))
    points = measured((at[:-1] + at[1:]) / 2, values)
    axis.plot(*points, color=color, linestyle=dash, marker="o", markersize=2.5, label=group.label)
    axis.set_xlabel(time.label)


def _draw_loss_course(axis, mean: Mean, at: np.ndarray, count: int) -> list[tuple[float, str, str]]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    there = np.flatnonzero(np.isfinite(mean.mean[-1]))  # the ranges that have a validation image
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(len(there), SHOWN_BINS)).round().astype(int))]
    ends = []
    for k, b in enumerate(chosen):
        color = to_hex(colormaps["viridis"](0.85 * k / max(1, len(chosen) - 1)))
        axis.plot(mean.images, mean.mean[:, b], color=color, linewidth=1.4)
        middle = (at[b] + at[b + 1]) / 2
        ends.append((float(mean.mean[-1, b]), f"t≈{middle:.3g}", color))
    images_axis(axis, count)
    return ends
