"""The density of the sampled timesteps over training, as a heat map per group.

The log has c_k, the share of each range of timesteps since the start, after n_k images. The number of rows is
proportional to that of images, so the share between two logs is

    s_k = (c_k n_k - c_{k-1} n_{k-1}) / (n_k - n_{k-1}),     n_0 = 0

which may be slightly below 0 due to rounding. Divided by the range's share of the timesteps it is a density, 1 for the
uniform distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import (
    data_uri,
    images_axis,
    label_bottom,
    line_style,
    panel_title,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.base import Figure, seeds_text
from diffusion_lab.reports.figures.timestep_bins import TimeAxis, relative, with_list

COLUMNS = 60  # maximum number of periods in a panel; logs in between are skipped
COLORS = "cividis"  # lightness rises with the density, also for colour blindness and in grey; its middle is neutral
LEAST, MOST = 2.0, 16.0  # bounds of the colour scale's upper end


class Density(NamedTuple):
    """Density of t relative to uniform, (periods, bins), between images (periods + 1,) and timesteps (bins + 1,)."""

    images: np.ndarray
    edges: np.ndarray
    values: np.ndarray


def drawn_over_training(groups: Sequence[Group]) -> Figure | None:
    """Density of the timesteps drawn, against images seen."""
    present = with_list(groups, "sampler/drawn")
    if not present:
        return None
    time = TimeAxis.of([group for _, group, _ in present])
    maps = [density(group, mean.images, mean.mean, time) for _, group, mean in present]
    top = scale([each.values for each in maps])
    with style():
        from matplotlib.colors import LogNorm

        figure, axes = small_multiples(len(present), height=2.1)
        norm = LogNorm(1 / top, top)
        for axis, (i, group, _), each in zip(axes, present, maps, strict=True):
            shown = np.maximum(each.values.T, 1 / top)  # log 0 is the lowest colour
            # Rasterised, because vector cells would show seams and take megabytes.
            mesh = axis.pcolormesh(each.images, each.edges, shown, cmap=COLORS, norm=norm, rasterized=True)
            panel_title(axis, group.label, line_style(i).color, len(present))
            images_axis(axis, len(present))
            axis.margins(0)
            axis.grid(visible=False)
        label_bottom(axes, "images seen")
        axes[0].set_ylabel(time.label)
        _color_bar(figure, axes, mesh, top)
        image = data_uri(figure)
    caption = (
        "Density of the timesteps trained on between two logs, relative to the uniform distribution: grey is 1, "
        "yellow more often, blue more rarely, one logarithmic scale for all. t = 0 is the least noise. Mean over seeds "
        f"({seeds_text([group for _, group, _ in present])}), common axes."
    )
    return Figure("Timesteps drawn during training", caption, image)


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
