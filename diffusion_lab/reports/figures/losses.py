"""Figures of the validation loss by noise level: over timesteps and over log SNR at the end, and during training.

Lists in metrics.jsonl are over equal ranges of timesteps. Over log SNR, on which schedules with other timesteps can be
compared, a range is drawn at the mean of ln SNR over its timesteps, which the run records at about a hundred timesteps;
those in between are interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from diffusion_lab.plotting import (
    LOG_SNR,
    SHORT_NAME,
    columns_of,
    images_axis,
    label_ends,
    line_style,
    log_axis,
    log_if_wide,
    log_snr_axis,
    many,
    name_lines,
    panels,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, shared_protocol
from diffusion_lab.reports.figures.base import (
    GREY,
    Figure,
    GroupMean,
    group_means,
    line_end,
    panel_per_group,
    seeds_text,
)
from diffusion_lab.reports.figures.timesteps import TimeAxis, edges

LOSS_BY_T = "val/loss_t"
SHOWN_BINS = 5  # timesteps whose course is drawn


def validated(groups: Sequence[Group]) -> list[GroupMean]:
    """The mean loss (n, bins) of the groups that have validated by range of timesteps."""
    means = group_means(groups, lambda group: [run.curve(LOSS_BY_T) for run in group.comparable(LOSS_BY_T)])
    return [one for one in means if one.mean.ndim == 2]


def loss_by_timestep(groups: Sequence[Group]) -> Figure | None:
    """Validation loss over timesteps at the end, and its ratio to the first group's."""
    present = validated(groups)
    if not present:
        return None
    first = present[0]
    alike = [one for one in present if shared_protocol(one.group, VAL_LOSS) == shared_protocol(first.group, VAL_LOSS)]
    same = [one for one in alike if one.x[-1] == first.x[-1] and one.last.shape == first.last.shape]
    ratios = f" Coloured: ratio to that of {first.group.label}; grey: the other groups." if many(len(same)) else ""
    caption = (
        "Unweighted loss on held-out images by range of timesteps, with averaged weights where the run keeps them, at "
        f"the last validation; mean over seeds ({_seeds(groups)}). t = 0 is the least noise.{ratios}"
    )
    empty = int(np.isnan([one.last for one in same]).all(0).sum()) % len(first.last)  # all of them: it is not finite
    if empty:
        caption += (
            f" {empty} of {len(first.last)} ranges have no validation image and no point; more images "
            "(dataset.val_images) or fewer ranges (callbacks.validation.bins) fill them."
        )
    if lost := [one.group.label for one in same if np.isnan(one.last).sum() > empty]:
        caption += f" The loss is not finite in ranges without a point: {', '.join(lost)}."
    if len(alike) < len(present):
        others = ", ".join(one.group.label for one in present if one not in alike)
        caption += f" No ratio for groups with another prediction or schedule: {others}."
    if len({int(one.x[-1]) for one in present}) > 1:
        seen = ", ".join(f"{one.group.label} {one.x[-1]}" for one in present)
        caption += f" The groups have seen different numbers of images ({seen}); ratios are given for equal ones only."
    return Figure.drawn("Loss over timesteps", caption, _over_timesteps, present, same)


def _over_timesteps(present: Sequence[GroupMean], same: Sequence[GroupMean]) -> Any:
    """The loss, and its ratio to the first group's: all groups over each other; of many groups the ratio alone."""
    if many(len(same)):
        return _ratio_panels(same)
    figure, axes = panels(1 if len(same) < 2 else 2, height=3.6)
    time = TimeAxis.of([one.group for one in present])
    ends = [[_line(axes[0], one, time.middles(one.group, len(one.last)), one.last) for one in present]]
    axes[0].set_title("validation loss")
    log_axis(axes[0])
    if len(same) > 1:
        at = [time.middles(one.group, len(one.last)) for one in same]
        ends.append([_line(axes[1], one, x, one.last / same[0].last) for one, x in zip(same, at, strict=True)])
        name = same[0].group.label
        axes[1].set_title(f"its ratio to {name if len(name) <= SHORT_NAME else 'the first of the table'}")
    for axis in axes:
        axis.set_xlabel(time.label)
    name_lines(figure, axes, ends)
    return figure


def _line(axis: Any, one: GroupMean, at: np.ndarray, values: np.ndarray) -> tuple[float, str, str]:
    """One group's line; its end."""
    color, dash = line_style(one.index)
    axis.plot(*measured(at, values), color=color, linestyle=dash, marker="o", markersize=2.5, label=one.group.label)
    return line_end(one.index, one.group, values)


def _ratio_panels(same: Sequence[GroupMean]) -> Any:
    """The ratio to the first group's loss."""
    ratios = [one.last / same[0].last for one in same]
    time = TimeAxis.of([one.group for one in same])
    curves = [(time.middles(one.group, len(ratio)), ratio) for one, ratio in zip(same, ratios, strict=True)]
    figure, axes = _panels(same, curves, time.label, "loss ratio")
    log_if_wide(axes[0], ratios, ratio=4)
    return figure


def _panels(
    shown: Sequence[GroupMean], curves: Sequence[tuple[np.ndarray, np.ndarray]], below: str, left: str
) -> tuple[Any, list[Any]]:
    """One panel per group, with the others in grey behind it."""

    def draw(axis: Any, k: int) -> None:
        for curve in curves:
            axis.plot(*measured(*curve), color=GREY, linewidth=0.6)
        axis.plot(*measured(*curves[k]), color=line_style(shown[k].index).color)

    return panel_per_group(shown, draw, below, left)


def loss_by_log_snr(groups: Sequence[Group]) -> Figure | None:
    """Validation loss over log SNR at the end; None if no group has recorded both."""
    known = ((one, log_snr_of(one.group, len(one.last))) for one in validated(groups))
    present = [(one, at) for one, at in known if at is not None]
    if not present:
        return None
    caption = (
        "The same loss at the same validation over ln SNR = ln(α²/σ²): each range of timesteps at the mean of its "
        "timesteps. Schedules that put their timesteps at other noise levels can be compared here, predictions of "
        f"different quantities cannot. Mean over seeds ({_seeds([one.group for one, _ in present])})."
    )
    return Figure.drawn("Loss over log SNR", caption, _noise_panels if many(len(present)) else _noise_lines, present)


def log_snr_of(group: Group, bins: int) -> np.ndarray | None:
    """(bins,) mean of ln SNR over the timesteps of each range; None if the runs have not recorded it."""
    recorded = next((run.log_snr for run in group.runs if run.log_snr is not None), None)
    at = edges(group, bins)
    if recorded is None or at.dtype.kind != "i" or at[-1] < max(2, bins):
        return None
    timesteps = np.arange(at[-1])
    known = np.round(np.linspace(0, at[-1] - 1, len(recorded)))
    log_snr = np.interp(timesteps, known, recorded)
    return np.add.reduceat(log_snr, at[:-1]) / np.diff(at)


def _noise_lines(present: Sequence[tuple[GroupMean, np.ndarray]]) -> Any:
    """All groups over each other."""
    figure, (axis,) = panels(1, height=3.6)
    ends = [_line(axis, one, at, one.last) for one, at in present]
    axis.set_title("validation loss")
    _noise_axis(axis, present)
    log_axis(axis)
    name_lines(figure, [axis], [ends])
    return figure


def _noise_panels(present: Sequence[tuple[GroupMean, np.ndarray]]) -> Any:
    curves = [(at, one.last) for one, at in present]
    figure, axes = _panels([one for one, _ in present], curves, LOG_SNR, "validation loss")
    _noise_axis(axes[-1], present)
    log_axis(axes[0])
    return figure


def _noise_axis(axis: Any, present: Sequence[tuple[GroupMean, np.ndarray]]) -> None:
    low, high = min(at.min() for _, at in present), max(at.max() for _, at in present)
    margin = 0.03 * (high - low)
    log_snr_axis(axis, low - margin, high + margin)


def loss_over_training(groups: Sequence[Group]) -> Figure | None:
    """Validation loss against images seen, at a few ranges of timesteps, one panel per group."""
    means = [one for one in validated(groups) if len(one.x) > 1]
    if not means:
        return None
    caption = (
        "The same loss during training, at ranges of timesteps from the least noise (dark) to the most (light); their "
        f"middle stands at the right. Mean over seeds ({_seeds(groups)}), common axes."
    )
    return Figure.drawn("Loss over timesteps during training", caption, _course_panels, means)


def _course_panels(means: Sequence[GroupMean]) -> Any:
    ends = []
    time = TimeAxis.of([one.group for one in means])

    def draw(axis: Any, k: int) -> None:
        ends.append(_draw_course(axis, means[k], time, len(means)))

    figure, axes = panel_per_group(means, draw, "images seen", "validation loss")
    log_axis(axes[0])
    columns = columns_of(len(means))
    for k, (axis, last) in enumerate(zip(axes, ends, strict=True)):
        if k % columns == columns - 1 or axis is axes[-1]:
            label_ends(axis, last, size=8.5)
    return figure


def _draw_course(axis: Any, one: GroupMean, time: TimeAxis, count: int) -> list[tuple[float, str, str]]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    middles, finite = time.middles(one.group, one.mean.shape[1]), np.isfinite(one.mean)
    last = int(np.flatnonzero(finite.any(1))[-1:].sum())  # the validation before all of them were lost
    there = np.flatnonzero(finite[last])  # the ranges that have a validation image
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(len(there), SHOWN_BINS)).round().astype(int))]
    ends = []
    for k, b in enumerate(chosen):
        color = to_hex(colormaps["viridis"](0.85 * k / max(1, len(chosen) - 1)))
        axis.plot(one.x, one.mean[:, b], color=color, linewidth=1.4)
        ends.append((float(one.mean[last, b]), f"{'t/T' if time.relative else 't'}≈{middles[b]:.3g}", color))
    images_axis(axis, count)
    return ends


def measured(at: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line over ranges, (bins,) each, without those of ranges that have no value, such as ranges of
    timesteps in which no validation image lies: the line goes on to the next that has one."""
    there = np.isfinite(values)
    return at[there], values[there]


def _seeds(groups: Sequence[Group]) -> str:
    """`2 seeds each` of the groups that have validated."""
    present = [group for group in groups if group.comparable(LOSS_BY_T)]
    return seeds_text(present, lambda group: group.comparable(LOSS_BY_T))
