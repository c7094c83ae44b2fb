"""Figures of the sampled timesteps and of the effective objective.

Lists in metrics.jsonl are over equal ranges of timesteps: bin i of n holds the t with floor(t n/T) = i.
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
    panel_title,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, Mean, over_seeds, seeds_text
from diffusion_lab.runs.run import Run


def edges(group: Group, bins: int) -> np.ndarray:
    """(bins + 1,) first timestep of each range, and T; ceil(i T/n) is the first t with floor(t n/T) = i."""
    schedule = group.config.get("schedule") or {}
    total = schedule.get("num_timesteps")
    return -(-np.arange(bins + 1) * total // bins) if isinstance(total, int) else np.linspace(0, 1, bins + 1)


class TimeAxis(NamedTuple):
    """The axis of timesteps: t if all groups have the same number of timesteps, else t/T."""

    label: str
    relative: bool

    @classmethod
    def of(cls, groups: Sequence[Group]) -> TimeAxis:
        several = len({int(edges(group, 1)[-1]) for group in groups}) > 1
        return cls("timestep t/T" if several else "timestep t", several)

    def edges(self, group: Group, bins: int) -> np.ndarray:
        """The edges of the ranges on this axis."""
        at = edges(group, bins)
        return at / at[-1] if self.relative else at


def drawn(groups: Sequence[Group]) -> Figure | None:
    """Share of the sampled timesteps, with the sampler's probabilities."""
    present = with_list(groups, "sampler/drawn")
    if not present:
        return None
    with style():
        figure, axes = small_multiples(len(present))
        time = TimeAxis.of([group for _, group, _ in present])
        for axis, (i, group, mean) in zip(axes, present, strict=True):
            shares, color = relative(group, mean.mean[-1]), line_style(i).color
            axis.stairs(
                shares, time.edges(group, len(shares)), fill=True, color=color, alpha=0.4, label="drawn since the start"
            )
            _panel(axis, group, i, len(present), "1: uniform")
            _draw_probabilities(axis, group, time)
        label_bottom(axes, time.label)
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("relative to uniform")
        _legend(figure, axes[0])
        image = data_uri(figure)
    caption = (
        "Filled: share of all rows trained on since the start, by range of timesteps; solid: the sampler's "
        "probabilities at the end; dotted: their mean over training. 1 is the uniform distribution. For a fixed "
        "sampler the two lines coincide and the filled steps follow them; for an adaptive one they follow the dotted "
        f"line. Mean over seeds ({seeds_text([g for _, g, _ in present])}), common axes."
    )
    return Figure("Timesteps drawn against the sampler's probabilities", caption, image)


def objective(groups: Sequence[Group]) -> Figure | None:
    """The weight of each timestep in the objective, from sampling and weighting together."""
    present = with_list(groups, "sampler/objective")
    if not present:
        return None
    with style():
        figure, axes = small_multiples(len(present))
        time = TimeAxis.of([group for _, group, _ in present])
        everything = [(group, relative(group, mean.mean[-1])) for _, group, mean in present]
        for axis, (i, group, mean) in zip(axes, present, strict=True):
            for other, values in everything:
                if other is not group:
                    at = time.edges(other, len(values))
                    axis.stairs(values, at, color="#BBBBBB", linewidth=0.9, baseline=None, label="the other groups")
            axis.stairs(
                relative(group, mean.mean[-1]),
                time.edges(group, mean.mean.shape[1]),
                color=line_style(i).color,
                linewidth=2,
                baseline=None,
            )
            _panel(axis, group, i, len(present), "1: simple loss of DDPM")
        _legend(figure, axes[0])
        label_bottom(axes, time.label)
        log_if_wide(axes[0], [values for _, values in everything])
        if axes[0].get_yscale() == "linear":
            axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("relative to uniform")
        image = data_uri(figure)
    caption = (
        "Probability times weight on the loss in noise (eps), normalised, at the end of training: the objective that "
        "the run minimises. 1 at every t is the simple loss of DDPM. Grey: the other groups. Mean "
        f"over seeds ({seeds_text([g for _, g, _ in present])}), common axes."
    )
    return Figure("Effective objective", caption, image)


def measured(at: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line over ranges, (bins,) each, without those of ranges that have no value, such as ranges of
    timesteps in which no validation image lies: the line goes on to the next that has one."""
    there = np.isfinite(values)
    return at[there], values[there]


def relative(group: Group, shares: np.ndarray) -> np.ndarray:
    """Shares of n ranges (n,) as multiples of those of the uniform distribution."""
    widths = np.diff(edges(group, len(shares)))
    return shares / np.nansum(shares) / (widths / widths.sum())


def with_list(groups: Sequence[Group], key: str) -> list[tuple[int, Group, Mean]]:
    """The groups that have logged a list `key`, with their index and their mean over seeds."""

    def has(run: Run) -> bool:
        return run.curve(key).values.ndim == 2 and len(run.curve(key).steps) > 0

    present = []
    for i, group in enumerate(groups):
        curves = [run.curve(key) for run in (group.done or group.started) if has(run)]
        mean = over_seeds(curves)
        if mean is not None:
            present.append((i, group, mean))
    return present


def _draw_probabilities(axis, group: Group, time: TimeAxis) -> None:
    """The sampler's distribution at the end, and its mean over training by images seen."""
    for _, _, mean in with_list([group], "sampler/p"):
        at = time.edges(group, mean.mean.shape[1])
        images = np.diff(mean.images, prepend=0)
        average = np.average(mean.mean, axis=0, weights=np.maximum(images, 1))
        axis.stairs(relative(group, mean.mean[-1]), at, color="#222222", baseline=None, label="probabilities, end")
        axis.stairs(
            relative(group, average),
            at,
            color="#222222",
            baseline=None,
            linestyle=":",
            linewidth=1.5,
            label="probabilities, mean over training",
        )


def _panel(axis, group: Group, index: int, count: int, level: str) -> None:
    axis.axhline(1, color="#999999", linewidth=0.7, linestyle="--", zorder=0, label=level)
    panel_title(axis, group.label, line_style(index).color, count)


def _legend(figure, axis) -> None:
    """The names of the lines of a panel, each once, above the panels, where they cover no curve."""
    lines = {text: handle for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside upper left", ncols=4)
