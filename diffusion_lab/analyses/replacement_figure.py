"""The figure of `replacement`: distances of each set, the images, and the coefficients of the reverse step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffusion_lab.analyses.base import Result
from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.plotting import heading, line_style, panels, row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DISTANCES = (
    ("psnr", "PSNR to the truth, dB"),
    ("hue_error", "hue error, grey levels"),
    ("frechet", "Fr\N{LATIN SMALL LETTER E WITH ACUTE}chet distance to the training images"),
)


def figure_of(result: Result) -> Figure:
    """A panel for each distance that was measured, one for the images, one for C1 and C2."""
    present = [(key, title) for key, title in DISTANCES if key in result.data]
    count, facts = len(present) + 2, result.facts
    figure, axes = panels(2, (count + 1) // 2, height=max(3.0, 0.27 * len(facts["sets"]) + 0.8))
    for axis in axes[count:]:
        axis.set_visible(False)
    for axis, (key, title) in zip(axes, present, strict=False):
        _distances(axis, result, key, title)
    _pictures(axes[len(present)], result)
    _coefficients(axes[len(present) + 1], result)
    kept = f"; never at the last {facts['last']} timesteps" if facts["last"] else ""
    heading(figure, f"true x0 in place of the estimate at some timesteps{kept} ({facts['solver']})")
    handles, names = axes[0].get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(handles, names, loc="outside lower left", ncols=5)
    return figure


def per_model(result: Result, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the images and its standard error, (M,V) each; the error is NaN for a distance of all images."""
    values = result.data[key]
    if values.ndim == 2:
        return values, np.full(values.shape, np.nan)
    return values.mean(2), values.std(2, ddof=1) / values.shape[2] ** 0.5


def _distances(axis: Axes, result: Result, key: str, title: str) -> None:
    mean, error = per_model(result, key)
    groups, sets = result.facts["groups"], result.facts["sets"]
    for g, group in enumerate(groups):
        middle, half = with_error(mean, error, group["members"])
        place = np.arange(len(sets)) + 0.5 * (g - (len(groups) - 1) / 2) / len(groups)
        color = line_style(g).color
        bars = np.nan_to_num(half)
        axis.errorbar(middle, place, xerr=bars, color=color, linestyle="", marker="o", capsize=2, label=group["name"])
        axis.axvline(middle[0], color=color, linestyle=":", linewidth=1)
    row_names(axis, sets)
    axis.set_ylabel("timesteps with the true x0")
    axis.set_xlabel(title)
    members = [group["members"] for group in groups]
    alone = all(len(some) == 1 for some in members)
    if not (key == "frechet" and alone):
        axis.set_title(f"bars: {band_words(members, str(result.facts['images']) + ' images')}")


def _pictures(axis: Axes, result: Result) -> None:
    """A row for each set and one for the truth, a column for each image."""
    rows = np.concatenate([result.data["samples"], result.data["truth"][None]])
    bordered = np.pad(rows, ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)), constant_values=255)
    n, k, channels, height, width = bordered.shape
    canvas = bordered.transpose(0, 3, 1, 4, 2).reshape(n * height, k * width, channels)
    axis.imshow(canvas.repeat(3, axis=2) if channels == 1 else canvas, interpolation="nearest", aspect="equal")
    axis.set_yticks([height * (row + 0.5) for row in range(n)], [*result.facts["sets"], "truth"])
    axis.set_xticks([])
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    first = result.facts["groups"][0]["name"]
    axis.set_title(f"images{' of ' + first if first else ''}, the same noise in each column")


def _coefficients(axis: Axes, result: Result) -> None:
    """C1 and C2 by timestep, in the numbers of the ranges."""
    base = result.facts["index_base"]
    t = np.arange(len(result.data["c1"])) + base
    for i, (key, name) in enumerate((("c1", "$C_1$, of x0"), ("c2", "$C_2$, of $x_t$"))):
        axis.plot(t, result.data[key], color=line_style(i).color, label=name)
    if result.facts["last"]:
        axis.axvspan(max(t[0], 0.5), result.facts["last"] + base - 0.5, color="#DDDDDD", label="never replaced")
    axis.set_xscale("symlog", linthresh=10)
    axis.set_xlim(t[0], t[-1])
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("timestep, 1 the least noisy" if base else "timestep t")
    axis.set_title("$x_{t-1} = C_1 x_0 + C_2 x_t$ + noise")
    axis.legend(loc="center right")
