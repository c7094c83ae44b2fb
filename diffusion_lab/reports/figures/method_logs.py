"""Figures of what some methods alone log: the losses of a GAN, and the shares of the heads of a prediction.

Lists of shares in metrics.jsonl are over equal parts of the noise angle phi = atan(sigma/alpha), from 0 (the image) to
90 degrees (noise alone): bin i of n holds 90 i/n <= phi < 90 (i + 1)/n, and SNR = 1/tan^2(phi). Unlike t it does not
depend on the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.plotting import images_axis, line_style, panels
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import (
    Figure,
    averaged_runs,
    legend_above,
    over_seeds,
    panel_per_group,
    seeds_text,
)
from diffusion_lab.runs.run import Run

# logged key -> its name in the legend, and the dashes of its line
LOSSES = {"train/loss_generator": ("generator", "-"), "train/loss_discriminator": ("discriminator", ":")}
JUDGED = {"train/judged_real": ("real images", "-"), "train/judged_fake": ("generated images", ":")}
KINDS = {"head": "selected in training", "weight": "weight in generation"}
COLORS = "viridis"  # its lightness rises: heads differ in grey as well


def adversarial_losses(groups: Sequence[Group]) -> Figure | None:
    """Losses, and shares that the discriminator judges right, against images seen; None without a GAN."""
    present = [(i, group) for i, group in enumerate(groups) if group.comparable(next(iter(LOSSES)))]
    if not present:
        return None
    caption = (
        "Means since the log before. Right: share of the real images that the discriminator takes for real and of the "
        "generated ones that it takes for generated; the grey line is guessing. A generator's loss does not measure "
        "its images, and losses of different kinds have no common scale. Mean over seeds "
        f"({seeds_text([group for _, group in present])})."
    )
    return Figure.drawn("Losses of the GAN", caption, _adversarial_panels, present)


def _adversarial_panels(present: Sequence[tuple[int, Group]]) -> Any:
    figure, axes = panels(2, height=3.6)
    for axis, lines, title in zip(axes, (LOSSES, JUDGED), ("losses", "share judged right"), strict=True):
        for i, group in present:
            for key, (name, dashes) in lines.items():
                mean = over_seeds([run.curve(key) for run in group.comparable(key)])
                if mean is not None:
                    label = f"{group.label}: {name}" if len(present) > 1 else name
                    axis.plot(mean.images, mean.mean, color=line_style(i).color, linestyle=dashes, label=label)
        axis.set_title(title)
        axis.set_xlabel("images seen")
        images_axis(axis, 2)
        axis.legend(fontsize=8)
    axes[1].set_ylim(0, 1.02)
    axes[1].axhline(0.5, color="#999999", linewidth=0.8)
    return figure


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
    with_heads = list({each.index: each.group for each in present}.values())
    caption = (
        "Share of each head at the end of training, by bins of the noise angle φ = atan(σ/α): 0° is the image, 90° "
        "noise alone, and SNR = 1/tan² φ, which is 1 at 45°. Selected in training: of the recent rows, the share that "
        "trained the head; weight in generation: of its estimate in the answer. White: noise that no recent row had. "
        f"Mean over seeds ({seeds_text(with_heads, _runs)})."
    )
    return Figure.drawn("Which head is used, by noise", caption, _head_panels, present)


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
    return [run for run in averaged_runs(group) if run.keys("prediction/")]


def _head_panels(present: Sequence[Shares]) -> Any:
    from matplotlib import colormaps

    names = list(dict.fromkeys(head for each in present for head in each.values))
    colors = [colormaps[COLORS](0.12 + 0.83 * k / max(1, len(names) - 1)) for k in range(len(names))]

    def draw(axis: Any, k: int) -> None:
        low: Any = 0.0
        for name, color in zip(names, colors, strict=True):
            if name in present[k].values:
                high = low + present[k].values[name]
                at, label = np.linspace(0, 90, len(high) + 1), f"head {name}"
                axis.stairs(high, at, baseline=low, fill=True, facecolor=color, linewidth=0, label=label)
                low = high
        axis.set_xlim(0, 90)
        axis.set_ylim(0, 1)
        axis.set_xticks([0, 30, 45, 60, 90])
        axis.grid(visible=False)

    titles = [(each.index, f"{each.group.label}: {KINDS[each.kind]}") for each in present]
    figure, axes = panel_per_group(titles, draw, "noise angle φ, degrees", "share")
    legend_above(figure, axes, len(names))
    return figure
