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

from diffusion_lab.plotting import images_axis, line_style, many, panels
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import (
    Figure,
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
    key = next(iter(LOSSES))
    present = [(i, group) for i, group in enumerate(groups) if group.comparable(key)]
    if not present:
        return None
    seeds = seeds_text([group for _, group in present], lambda group: group.comparable(key))
    share = (
        "the share of the real images that the discriminator takes for real and of the generated ones that it takes "
        f"for generated; the grey line is guessing. Mean since the log before, and over seeds ({seeds})."
    )
    if many(len(present)):
        return Figure.drawn("Judgement of the discriminator", f"Lines: {share}", _judged_panels, present)
    caption = (
        f"Left: losses. A generator's loss does not measure its images, and losses of different kinds have no common "
        f"scale. Right: {share}"
    )
    return Figure.drawn("Losses of the GAN", caption, _adversarial_panels, present)


def _adversarial_panels(present: Sequence[tuple[int, Group]]) -> Any:
    """All groups over each other: their losses, and what their discriminators judge right."""
    figure, axes = panels(2, height=3.6)
    for axis, lines, title in zip(axes, (LOSSES, JUDGED), ("losses", "share judged right"), strict=True):
        for i, group in present:
            _draw_lines(axis, lines, group, line_style(i).color, f"{group.label}: " if len(present) > 1 else "")
        axis.set_title(title)
        axis.set_xlabel("images seen")
        images_axis(axis, 2)
        axis.legend(fontsize=8)
    _share_axis(axes[1])
    return figure


def _judged_panels(present: Sequence[tuple[int, Group]]) -> Any:
    """What the discriminator judges right, in a panel for each group."""

    def draw(axis: Any, k: int) -> None:
        index, group = present[k]
        _draw_lines(axis, JUDGED, group, line_style(index).color)
        images_axis(axis, len(present))
        _share_axis(axis)

    figure, axes = panel_per_group(present, draw, "images seen", "share judged right")
    legend_above(figure, axes, len(JUDGED))
    return figure


def _draw_lines(axis: Any, lines: dict[str, tuple[str, str]], group: Group, color: str, before: str = "") -> None:
    for key, (name, dashes) in lines.items():
        mean = over_seeds([run.curve(key) for run in group.comparable(key)])
        if mean is not None:
            axis.plot(mean.images, mean.mean, color=color, linestyle=dashes, label=f"{before}{name}")


def _share_axis(axis: Any) -> None:
    axis.set_ylim(0, 1.02)
    axis.axhline(0.5, color="#999999", linewidth=0.8)


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
    """The runs over which the shares of a group are averaged."""
    first = next((key for run in group.started for key in run.keys("prediction/")), "")
    return group.comparable(first) if first else []


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

    titles = [f"{each.group.label}: {KINDS[each.kind]}" for each in present]
    figure, axes = panel_per_group(present, draw, "noise angle φ, degrees", "share", titles=titles)
    legend_above(figure, axes, len(names))
    return figure
