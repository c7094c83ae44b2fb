"""Shares of the heads of a prediction with several, by noise level.

Lists in metrics.jsonl are over equal parts of the noise angle phi = atan(sigma/alpha), from 0 (the image) to 90
degrees (noise alone): bin i of n holds 90 i/n <= phi < 90 (i + 1)/n, and SNR = 1/tan^2(phi). Unlike t it does not
depend on the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import data_uri, label_bottom, line_style, panel_title, small_multiples, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, seeds_text
from diffusion_lab.runs.run import Run

KINDS = {"head": "selected in training", "weight": "weight in generation"}
COLORS = "viridis"  # its lightness rises: heads differ in grey as well


class Shares(NamedTuple):
    """Shares of one group and kind: head -> mean over seeds (bins,); NaN in a bin that no seed has reached."""

    index: int
    group: Group
    kind: str
    values: dict[str, np.ndarray]


def heads(groups: Sequence[Group]) -> Figure | None:
    """Shares of the heads at the end of training, stacked, one panel per group and kind; None without such heads."""
    candidates = [shares(i, group, kind) for i, group in enumerate(groups) for kind in KINDS]
    present = [each for each in candidates if each.values]
    if not present:
        return None
    names = list(dict.fromkeys(head for each in present for head in each.values))
    with style():
        figure, axes = small_multiples(len(present))
        for axis, each in zip(axes, present, strict=True):
            _stack(axis, each, names)
            panel_title(axis, f"{each.group.label}: {KINDS[each.kind]}", line_style(each.index).color, len(present))
        label_bottom(axes, "noise angle φ, degrees")
        axes[0].set_ylabel("share")
        handles = {text: h for axis in axes for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles, loc="outside upper left", ncols=len(names))
        image = data_uri(figure)
    with_heads = list({each.index: each.group for each in present}.values())
    caption = (
        "Share of each head at the end of training, by bins of the noise angle φ = atan(σ/α): 0° is the image, 90° "
        "noise alone, and SNR = 1/tan² φ, which is 1 at 45°. Selected in training: of the recent rows, the share that "
        "trained the head; weight in generation: of its estimate in the answer. White: noise that no recent row had. "
        f"Mean over seeds ({seeds_text(with_heads, lambda group: _runs(group))})."
    )
    return Figure("Which head is used, by noise", caption, image)


def shares(index: int, group: Group, kind: str) -> Shares:
    """The last logged `prediction/{kind}_NAME` of every head NAME, mean over the seeds that have reached the bin."""
    keys = [key for run in _runs(group) for key in run.keys(f"prediction/{kind}_")]
    values = {}
    for key in dict.fromkeys(keys):
        lasts = [run.curve(key).values[-1] for run in group.comparable(key) if run.curve(key).values.ndim == 2]
        same = [last for last in lasts if last.shape == lasts[0].shape]
        if same:
            stack = np.stack(same)
            counted = np.isfinite(stack).sum(0)
            mean = np.nansum(stack, axis=0) / np.maximum(counted, 1)
            values[re.sub(rf"^prediction/{kind}_", "", key)] = np.where(counted > 0, mean, np.nan)
    return Shares(index, group, kind, values)


def _runs(group: Group) -> list[Run]:
    return [run for run in (group.done or group.started) if run.keys("prediction/")]


def _stack(axis, each: Shares, names: Sequence[str]) -> None:
    from matplotlib import colormaps

    low = 0.0
    for k, name in enumerate(names):
        if name not in each.values:
            continue
        high = low + each.values[name]
        axis.stairs(
            high,
            np.linspace(0, 90, len(high) + 1),
            baseline=low,
            fill=True,
            facecolor=colormaps[COLORS](0.12 + 0.83 * k / max(1, len(names) - 1)),
            linewidth=0,
            label=f"head {name}",
        )
        low = high
    axis.set_xlim(0, 90)
    axis.set_ylim(0, 1)
    axis.set_xticks([0, 30, 45, 60, 90])
    axis.grid(visible=False)
