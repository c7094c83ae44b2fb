"""Figure of the analysis `landscape`: contours of the shape of each surface, all on one scale from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffusion_lab.plotting import WIDTH, heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

MOST = 8  # panels
COLUMNS = 4
HEIGHT = 2.45  # inches of a row with `COLUMNS` panels
TALLEST = 4.0
LEVELS = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1)


def surfaces(result: Result) -> Figure:
    """One group: a panel for the average and for each timestep. Several: a panel for the average of each."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm
    from matplotlib.figure import Figure

    panels = _panels(result)[:MOST]
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, min(TALLEST, HEIGHT * COLUMNS / columns) * rows + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    offset, colors = result.data["offset"], matplotlib.colormaps["viridis"]
    drawn = None
    for axis, (title, surface) in zip(axes, panels, strict=False):
        shape = _shape(surface)
        drawn = axis.contourf(offset, offset, shape.T, LEVELS, cmap=colors, norm=BoundaryNorm(LEVELS, colors.N))
        axis.contour(offset, offset, shape.T, LEVELS[1:-1], colors="white", linewidths=0.5)
        middle = surface[len(offset) // 2, len(offset) // 2]
        low = np.unravel_index(surface.argmin(), surface.shape)
        if surface[low] < middle:
            axis.plot(offset[low[0]], offset[low[1]], color="#D55E00", marker="v", markersize=6, linestyle="")
        axis.plot(0, 0, color="white", marker="+", markersize=9, markeredgewidth=1.8, linestyle="")
        span = f"model {middle:.3g}, range {surface.min():.3g} to {surface.max():.3g}"
        axis.set_title(f"{title}\n{span}", size=7.5)
        axis.set_aspect("equal")
        axis.grid(visible=False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel("along direction 1")
        axis.tick_params(labelbottom=True)
    for axis in axes[::columns]:
        axis.set_ylabel("along direction 2")
    words = "loss on a plane through the weights; at 1 each filter has moved by its own length; + model"
    heading(figure, f"{words}, \N{BLACK DOWN-POINTING TRIANGLE} lowest point")
    if drawn is not None:
        bar = figure.colorbar(drawn, ax=axes[: len(panels)], ticks=LEVELS, shrink=0.9)
        bar.set_label("height above the lowest point,\nshare of the panel's range")
        bar.ax.set_yticklabels([f"{level:g}" for level in LEVELS])
    return figure


def _panels(result: Result) -> list[tuple[str, np.ndarray]]:
    """Title and surface of each panel; a mean over the seeds of a group."""
    data, groups = result.data, result.facts["groups"]
    averages = [data["average"][group["members"]].mean(0) for group in groups]
    if len(groups) > 1:
        return [(group["name"], average) for group, average in zip(groups, averages, strict=True)]
    names, members = result.facts["names"][groups[0]["members"][0]], groups[0]["members"]
    if len(names) == 1:
        return [(names[0], averages[0])]
    single = np.stack([data[f"surface_{m}"] for m in members]).mean(0)
    return [("average", averages[0]), *((name, single[..., k]) for k, name in enumerate(names))]


def _shape(surface: np.ndarray) -> np.ndarray:
    """(L - min) / (max - min); zero where the loss is the same everywhere."""
    span = surface.max() - surface.min()
    return (surface - surface.min()) / span if span > 0 else np.zeros_like(surface)
