"""Figure of the loss over log SNR, on which schedules with other timesteps can be compared.

Lists in metrics.jsonl are over equal ranges of timesteps. A range is drawn at the mean of ln SNR over its timesteps,
which the run records at about a hundred timesteps; those in between are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import (
    data_uri,
    label_bottom,
    line_style,
    log_axis,
    many,
    name_lines,
    panel_title,
    panels,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.figures.losses import last_losses, loss_seeds
from diffusion_lab.reports.figures.timestep_bins import edges, measured

AXIS = "log SNR: noise on the left, the image on the right"


class _Present(NamedTuple):
    """A group, its place in the report, and its loss (bins,) at log SNR (bins,)."""

    index: int
    group: Group
    at: np.ndarray
    loss: np.ndarray


def loss_by_log_snr(groups: Sequence[Group]) -> Figure | None:
    """Validation loss over log SNR at the end; None if no group has recorded both."""
    validated = [(i, group, last.loss) for i, group in enumerate(groups) if (last := last_losses(group)) is not None]
    placed = [(i, group, log_snr_of(group, len(loss)), loss) for i, group, loss in validated]
    present = [_Present(i, group, at, loss) for i, group, at, loss in placed if at is not None]
    if not present:
        return None
    with style():
        image = _panels(present) if many(len(present)) else _lines(present)
    caption = (
        "The same loss at the same validation over ln SNR = ln(α²/σ²): each range of timesteps at the mean of its "
        "timesteps. Schedules that put their timesteps at other noise levels can be compared here, predictions of "
        f"different quantities cannot. Mean over seeds ({loss_seeds([each.group for each in present])})."
    )
    left_out = [group.label for i, group, _ in validated if i not in {each.index for each in present}]
    if left_out:
        caption += f" Without log SNR in their record, because they are older: {', '.join(left_out)}."
    return Figure("Loss over log SNR", caption, image)


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


def _lines(present: Sequence[_Present]) -> str:
    """All groups over each other."""
    figure, (axis,) = panels(1, height=3.6)
    ends = []
    for index, group, at, loss in present:
        color, dash = line_style(index)
        noise, values = measured(at, loss)
        axis.plot(noise, values, color=color, linestyle=dash, marker="o", markersize=2.5, label=group.label)
        ends.append((float(values[0]) if len(values) else math.nan, group.label, color))
    axis.set_title("validation loss")
    axis.set_xlabel(AXIS)
    log_axis(axis)
    name_lines(figure, [axis], [ends])
    return data_uri(figure)


def _panels(present: Sequence[_Present]) -> str:
    """One panel per group, with the others in grey behind it."""
    figure, axes = small_multiples(len(present))
    for axis, own in zip(axes, present, strict=True):
        for _, _, at, loss in present:
            axis.plot(*measured(at, loss), color="#CCCCCC", linewidth=0.6)
        color = line_style(own.index).color
        axis.plot(*measured(own.at, own.loss), color=color)
        panel_title(axis, own.group.label, color, len(present))
    log_axis(axes[0])
    label_bottom(axes, "log SNR")
    axes[0].set_ylabel("validation loss")
    return data_uri(figure)
