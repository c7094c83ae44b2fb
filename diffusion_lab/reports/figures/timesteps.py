"""Figures of the sampled timesteps, at the end and during training, and of the effective weighting.

Lists in metrics.jsonl are over equal ranges of timesteps: bin i of n holds the t with floor(t n/T) = i. A range's share
of the rows over its share of the timesteps is a density, 1 for the uniform distribution.

The log has c_k, the share of each range since the start, after n_k images. The number of rows is proportional to that
of images, so the share between two logs is

    s_k = (c_k n_k - c_{k-1} n_{k-1}) / (n_k - n_{k-1}),     n_0 = 0

which may be slightly below 0 due to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.plotting import images_axis, line_style, log_if_wide
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import (
    Figure,
    GroupMean,
    averaged_runs,
    group_means,
    legend_above,
    panel_per_group,
    seeds_text,
)
from diffusion_lab.runs.run import Run

COLUMNS = 60  # maximum number of periods in a panel; logs in between are skipped
COLORS = "cividis"  # lightness rises with the density, also for colour blindness and in grey; its middle is neutral
LEAST, MOST = 2.0, 16.0  # bounds of the colour scale's upper end


def with_list(groups: Sequence[Group], key: str) -> list[GroupMean]:
    """The groups that have logged a list `key`."""

    def has(run: Run) -> bool:
        return run.curve(key).values.ndim == 2 and len(run.curve(key).steps) > 0

    return group_means(groups, lambda group: [run.curve(key) for run in averaged_runs(group) if has(run)])


def edges(group: Group, bins: int) -> np.ndarray:
    """(bins + 1,) first timestep of each range, and T; ceil(i T/n) is the first t with floor(t n/T) = i."""
    schedule = group.config.get("schedule") or {}
    total = schedule.get("num_timesteps")
    return -(-np.arange(bins + 1) * total // bins) if isinstance(total, int) else np.linspace(0, 1, bins + 1)


def relative(group: Group, shares: np.ndarray) -> np.ndarray:
    """Shares of n ranges (n,) as multiples of those of the uniform distribution."""
    widths = np.diff(edges(group, len(shares)))
    return shares / np.nansum(shares) / (widths / widths.sum())


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

    def middles(self, group: Group, bins: int) -> np.ndarray:
        """The middles of the ranges on this axis."""
        at = self.edges(group, bins)
        return (at[:-1] + at[1:]) / 2


def drawn(groups: Sequence[Group]) -> Figure | None:
    """Share of the sampled timesteps, with the sampler's probabilities."""
    present = with_list(groups, "sampler/drawn")
    if not present:
        return None
    caption = (
        "Filled: share of all rows trained on since the start, by range of timesteps; solid: the sampler's "
        "probabilities at the end; dotted: their mean over training. 1 is the uniform distribution. For a fixed "
        "sampler the two lines coincide and the filled steps follow them; for an adaptive one they follow the dotted "
        f"line. Mean over seeds ({_seeds(present)}), common axes."
    )
    return Figure.drawn("Timesteps drawn against the sampler's probabilities", caption, _drawn_panels, present)


def _drawn_panels(present: Sequence[GroupMean]) -> Any:
    time = TimeAxis.of([one.group for one in present])

    def draw(axis: Any, k: int) -> None:
        one, shares = present[k], relative(present[k].group, present[k].last)
        at, color = time.edges(one.group, len(shares)), line_style(one.index).color
        axis.stairs(shares, at, fill=True, color=color, alpha=0.4, label="drawn since the start")
        _level(axis, "1: uniform")
        for p in with_list([one.group], "sampler/p"):
            average = np.average(p.mean, axis=0, weights=np.maximum(np.diff(p.x, prepend=0), 1))
            at, line = time.edges(p.group, p.mean.shape[1]), {"color": "#222222", "baseline": None}
            axis.stairs(relative(p.group, p.last), at, **line, label="probabilities, end")
            dotted = line | {"linestyle": ":", "linewidth": 1.5}
            axis.stairs(relative(p.group, average), at, **dotted, label="probabilities, mean over training")

    figure, axes = panel_per_group(present, draw, time.label, "relative to uniform")
    axes[0].set_ylim(bottom=0)
    legend_above(figure, axes, 4)
    return figure


def effective_weights(groups: Sequence[Group]) -> Figure | None:
    """The weight of each timestep in the objective, from sampling and weighting together."""
    present = with_list(groups, "sampler/objective")
    if not present:
        return None
    caption = (
        "Probability times weight on the loss in noise (eps), normalised, at the end of training: the objective that "
        "the run minimises. 1 at every t is the simple loss of DDPM. Grey: the other groups. Mean "
        f"over seeds ({_seeds(present)}), common axes."
    )
    return Figure.drawn("Effective weighting", caption, _effective_weight_panels, present)


def _effective_weight_panels(present: Sequence[GroupMean]) -> Any:
    time = TimeAxis.of([one.group for one in present])
    curves = [(relative(one.group, one.last), time.edges(one.group, len(one.last))) for one in present]

    def draw(axis: Any, k: int) -> None:
        for other, curve in enumerate(curves):
            if other != k:
                axis.stairs(*curve, color="#BBBBBB", linewidth=0.9, baseline=None, label="the other groups")
        axis.stairs(*curves[k], color=line_style(present[k].index).color, linewidth=2, baseline=None)
        _level(axis, "1: simple loss of DDPM")

    figure, axes = panel_per_group(present, draw, time.label, "relative to uniform")
    legend_above(figure, axes, 4)
    log_if_wide(axes[0], [values for values, _ in curves])
    if axes[0].get_yscale() == "linear":
        axes[0].set_ylim(bottom=0)
    return figure


def drawn_over_training(groups: Sequence[Group]) -> Figure | None:
    """Density of the timesteps drawn, against images seen, as a heat map per group."""
    present = with_list(groups, "sampler/drawn")
    if not present:
        return None
    caption = (
        "Density of the timesteps trained on between two logs, relative to the uniform distribution: grey is 1, "
        "yellow more often, blue more rarely, one logarithmic scale for all. t = 0 is the least noise. Mean over seeds "
        f"({_seeds(present)}), common axes."
    )
    return Figure.drawn("Timesteps drawn during training", caption, _density_panels, present)


def _density_panels(present: Sequence[GroupMean]) -> Any:
    from matplotlib.colors import LogNorm

    time = TimeAxis.of([one.group for one in present])
    maps = [density(one.group, one.x, one.mean, time) for one in present]
    top = scale([each.values for each in maps])
    norm, meshes = LogNorm(1 / top, top), []

    def draw(axis: Any, k: int) -> None:
        values = np.maximum(maps[k].values.T, 1 / top)  # log 0 is the lowest colour
        # Rasterised, because vector cells would show seams and take megabytes.
        mesh = axis.pcolormesh(maps[k].images, maps[k].edges, values, cmap=COLORS, norm=norm, rasterized=True)
        meshes.append(mesh)
        images_axis(axis, len(present))
        axis.margins(0)
        axis.grid(visible=False)

    figure, axes = panel_per_group(present, draw, "images seen", time.label, height=2.1)
    _color_bar(figure, axes, meshes[-1], top)
    return figure


class Density(NamedTuple):
    """Density of t relative to uniform, (periods, bins), between images (periods + 1,) and timesteps (bins + 1,)."""

    images: np.ndarray
    edges: np.ndarray
    values: np.ndarray


def density(group: Group, images: np.ndarray, cumulative: np.ndarray, time: TimeAxis) -> Density:
    """The density from shares since the start, (logs, bins), at increasing numbers of images (logs,)."""
    seen = images > 0
    images, cumulative = images[seen], cumulative[seen]
    kept = np.unique(np.linspace(0, len(images) - 1, min(len(images), COLUMNS)).round().astype(int))
    shares = between(images[kept], cumulative[kept])
    bounds = np.concatenate([[0], images[kept]])
    return Density(bounds, time.edges(group, shares.shape[1]), np.array([relative(group, share) for share in shares]))


def between(images: np.ndarray, cumulative: np.ndarray) -> np.ndarray:
    """Shares between two logs, (logs, bins), each row with sum 1, from those since the start."""
    rows = np.diff(cumulative * images[:, None], axis=0, prepend=0.0)
    rows = np.maximum(rows, 0.0)
    return rows / rows.sum(1, keepdims=True)


def scale(densities: Sequence[np.ndarray]) -> float:
    """Upper end of the colour scale, whose lower end is its inverse: the largest density, within `LEAST` and `MOST`."""
    return min(max(LEAST, *(float(np.nanmax(values)) for values in densities)), MOST)


def _color_bar(figure, axes, mesh, top: float) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter

    most = math.floor(math.log2(top))
    ticks = [2.0**k for k in range(-most, most + 1)]
    bar = figure.colorbar(mesh, ax=axes, extend="both", aspect=30, pad=0.015, fraction=0.05)
    bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.set_yticklabels([f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.set_label("density relative to uniform")


def _level(axis: Any, text: str) -> None:
    """The uniform distribution."""
    axis.axhline(1, color="#999999", linewidth=0.7, linestyle="--", zorder=0, label=text)


def _seeds(present: Sequence[GroupMean]) -> str:
    return seeds_text([one.group for one in present])
