"""The loss on a plane through a model's weights, along two filter-normalised random directions (`weight_space.py`).

    L(a, b) = L(theta + a d_1 + b d_2),     -radius <= a, b <= radius

("Why diffusion models are stable and how to make them faster", figures 2 and 11; Li et al. 2018). Surfaces of different
losses are compared by their shape, the height above the lowest point as a share of the range,

    s(a, b) = (L - min L) / (max L - min L),

because a diffusion model's loss is a mean square error and a GAN's is not. The shape is summarised by the number of
local minima (a point below its eight neighbours, off the border) and by the share of inner points where the surface
is not convex: its 2 x 2 matrix of second differences has a negative eigenvalue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.weights.weight_space import borrowed, cosine, directions, displaced, write
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.plotting import heading, panels
from diffusion_lab.training import TrainedModel
from diffusion_lab.training.trained_model import TIMESTEPS, check_timesteps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8  # panels of the figure
COLUMNS = 4
HEIGHT = 2.45  # inches of a row with `COLUMNS` panels
TALLEST = 4.0
LEVELS = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1)


class Landscape(Analysis):
    """Surfaces of the loss at several timesteps and on average, of one or several models.

    `data.npz` has offset (G,) and of each model m = 0, 1, .. surface_m (G,G,K), the mean over the images of each of
    its K losses at a = offset[i], b = offset[j]. Of their mean over K it has average (M,G,G); average_standard_error
    (M,G,G) of L(a, b) - L(0, 0) over the images; centre, lowest and highest (M,); border (M,), its mean on the border
    of the plane, and border_rise_standard_error (M,) of border - centre; minima and concave (M,), the numbers of the
    shape. cosine (M,) is that of the two directions.

    Models of one network have the same random numbers in their directions. One plane through thousands of dimensions
    is shown: another `seed` gives another one.

    Args:
        timesteps: those at which a diffusion model is evaluated, on a scale of 1000 whatever T is.
        images: number of test images, at least 2, evenly spread.
        points: G, an odd number of points in each direction, so that the model itself is one of them.
        radius: largest distance in each direction; 1 moves each filter by its own length.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range.
    """

    models = TrainedModel

    def __init__(
        self,
        timesteps: Sequence[int] = TIMESTEPS,
        images: int = 8,
        points: int = 25,
        radius: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        self.timesteps = check_timesteps(timesteps)
        self.images = check_integer("images", images, 2, "use 8; a standard error needs two")
        self.points = check_integer("points", points, 3, "use 25")
        if points % 2 == 0:
            raise ValueError(f"points={points} must be odd, so that the model is in the middle; use {points + 1}")
        self.radius = check_number("radius", radius, "(]", 0, 100, "use 1")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedModel]) -> None:
        for model in trained:
            model.check_images(self.images)

    def run(self, trained: Sequence[TrainedModel], work: Work) -> Result:
        offset = np.linspace(-self.radius, self.radius, self.points)
        offset[self.points // 2] = 0
        fixed_losses = [
            model.fixed_set_loss(self.timesteps, self.images, work.normal, self.batch_size) for model in trained
        ]
        ways = [directions(model.module, work.normal) for model in trained]

        @torch.no_grad()
        def row(m: int, i: int) -> dict[str, np.ndarray]:
            """Losses at (a, b) for each b: mean (G,K) over the images, and average (G,n) over the K losses."""
            module, found = trained[m].module, []
            with borrowed(module) as start:
                for b in offset:
                    write(module, displaced(start, ways[m], (float(offset[i]), float(b))))
                    found.append(fixed_losses[m].rows().double().cpu().numpy())
            losses = np.stack(found)
            return {"mean": losses.mean(1), "average": losses.mean(2)}

        each = work.nested("rows", row, len(trained), self.points)
        found = {f"surface_{m}": np.stack([piece["mean"] for piece in some]) for m, some in enumerate(each)}
        rows = np.stack([np.stack([piece["average"] for piece in some]) for some in each])  # (M,G,G,n)
        data = {"offset": offset} | found | _summary(rows)
        facts = {
            "groups": groups_of(trained),
            "names": [list(loss.names) for loss in fixed_losses],
            "images": self.images,
            "radius": self.radius,
        }
        return Result(data | {"cosine": np.array([cosine(*two) for two in ways])}, facts)

    def figure(self, result: Result) -> Figure:
        """Contours of the shapes, on one scale. One group: a panel for the average and for each timestep. Several: a
        panel for the average of each."""
        import matplotlib
        from matplotlib.colors import BoundaryNorm

        shown = _panels(result)[:MOST]
        columns = min(COLUMNS, len(shown))
        rows = -(-len(shown) // columns)
        height = min(TALLEST, HEIGHT * COLUMNS / columns) + 0.6 / rows
        figure, axes = panels(columns, rows, height, sharex=True, sharey=True, count=len(shown))
        offset, colors = result.data["offset"], matplotlib.colormaps["viridis"]
        drawn = None
        for axis, (title, surface) in zip(axes, shown, strict=True):
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
        for axis in axes[-columns:]:
            axis.set_xlabel("along direction 1")
            axis.tick_params(labelbottom=True)
        for axis in axes[::columns]:
            axis.set_ylabel("along direction 2")
        words = "loss on a plane through the weights; at 1 each filter has moved by its own length; + model"
        heading(figure, f"{words}, \N{BLACK DOWN-POINTING TRIANGLE} lowest point")
        if drawn is not None:
            bar = figure.colorbar(drawn, ax=axes, ticks=LEVELS, shrink=0.9)
            bar.set_label("height above the lowest point,\nshare of the panel's range")
            bar.ax.set_yticklabels([f"{level:g}" for level in LEVELS])
        return figure

    def sentence(self, result: Result) -> str:
        facts = result.facts
        said = joined([_group(result, group) for group in facts["groups"]])
        over = band_words(facts["groups"], f"{facts['images']} images or latents")
        angle = float(np.abs(result.data["cosine"]).max())
        ways = "orthogonal random directions" if angle < 1e-3 else f"random directions (cosine {angle:.1g})"
        return (
            f"On a plane through the weights, in two {ways} as long as each filter, "
            f"{said}; \N{PLUS-MINUS SIGN} is {over}."
        )


def shape_of(surface: np.ndarray) -> tuple[int, float]:
    """Number of local minima, and share of inner points that are not convex, of a surface (G,G)."""
    inner, ends = surface[1:-1, 1:-1], slice(1, -1)
    around = [np.roll(surface, (i, j), (0, 1))[ends, ends] for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    aa = surface[2:, 1:-1] - 2 * inner + surface[:-2, 1:-1]
    bb = surface[1:-1, 2:] - 2 * inner + surface[1:-1, :-2]
    ab = (surface[2:, 2:] - surface[2:, :-2] - surface[:-2, 2:] + surface[:-2, :-2]) / 4
    least = (aa + bb) / 2 - np.hypot((aa - bb) / 2, ab)
    rounding = 1e-6 * np.abs(surface).max()
    return int(np.all([inner < other for other in around], axis=0).sum()), float((least < -rounding).mean())


def _summary(rows: np.ndarray) -> dict[str, np.ndarray]:
    """From the averages (M,G,G,n) of each image."""
    middle, n = rows.shape[1] // 2, rows.shape[3]
    average = rows.mean(3)
    rise = rows - rows[:, middle, middle][:, None, None]
    edge = np.ones(average.shape[1:], dtype=bool)
    edge[1:-1, 1:-1] = False
    minima, concave = zip(*map(shape_of, average), strict=True)
    return {
        "average": average,
        "average_standard_error": rise.std(3, ddof=1) / n**0.5,
        "centre": average[:, middle, middle],
        "lowest": average.min((1, 2)),
        "highest": average.max((1, 2)),
        "border": average[:, edge].mean(1),
        "border_rise_standard_error": rise[:, edge].mean(1).std(1, ddof=1) / n**0.5,
        "minima": np.array(minima),
        "concave": np.array(concave),
    }


def _group(result: Result, group: dict[str, Any]) -> str:
    """What is said of one group."""
    data, members = result.data, group["members"]
    rise, half = (
        float(v) for v in with_error(data["border"] - data["centre"], data["border_rise_standard_error"], members)
    )
    centre, lowest = (float(data[key][members].mean()) for key in ("centre", "lowest"))
    minima, concave = float(data["minima"][members].mean()), 100 * float(data["concave"][members].mean())
    of = f" of {group['name']}" if group["name"] else ""
    times = f" ({(centre + rise) / centre:.3g} times)" if centre > 0 else ""
    below = "the lowest point" if lowest >= centre else f"{centre - lowest:.2g} above the lowest point"
    shape = "a single bowl" if minima == 1 else f"no single bowl, with {minima:g} local minima"
    return (
        f"the loss{of} is {centre:.3g} at the model, {below}, and rises by {plus_minus(rise, half)}{times} "
        f"on the border at distance {result.facts['radius']:g}: {shape}, not convex at {concave:.2g} % of the points"
    )


def _panels(result: Result) -> list[tuple[str, np.ndarray]]:
    """Title and surface of each panel; a mean over the seeds of a group."""
    data, groups = result.data, result.facts["groups"]
    averages = [data["average"][group["members"]].mean(0) for group in groups]
    if len(groups) > 1:
        return [(group["name"], average) for group, average in zip(groups, averages, strict=True)]
    names, members = result.facts["names"][groups[0]["members"][0]], groups[0]["members"]
    if len(names) == 1:
        return [(names[0], averages[0])]
    mean_surface = np.stack([data[f"surface_{m}"] for m in members]).mean(0)
    return [("average", averages[0]), *((name, mean_surface[..., k]) for k, name in enumerate(names))]


def _shape(surface: np.ndarray) -> np.ndarray:
    """(L - min) / (max - min); zero where the loss is the same everywhere."""
    span = surface.max() - surface.min()
    return (surface - surface.min()) / span if span > 0 else np.zeros_like(surface)
