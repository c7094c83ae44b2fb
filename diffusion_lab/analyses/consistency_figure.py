"""The figure of `consistency`: the images themselves, paired beside shuffled, and every pair of models."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from diffusion_lab.analyses.base import Result
from diffusion_lab.plotting import WIDTH, heading, line_style, row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = 10  # models whose images are shown, and comparisons that are drawn
WORDS = 24  # characters of a model's name
MANY = 20  # models that all have their number at the matrix


def figure_of(result: Result, comparisons: Sequence[str]) -> Figure:
    """Three panels; `comparisons` names the rows of the second."""
    from matplotlib.figure import Figure

    names = [shorten(name, WORDS, placeholder="\N{HORIZONTAL ELLIPSIS}") for name in result.facts["models"]]
    names = [f"{name}  {number}" for number, name in enumerate(names, start=1)]
    rows = max(min(len(names), ROWS), min(len(comparisons), ROWS))
    figure = Figure(figsize=(WIDTH, max(3.2, 0.32 * rows + 1.6)), layout="constrained")
    pictures, means, pairs = figure.subplots(1, 3, width_ratios=(1.5, 0.9, 1.0))
    _pictures(pictures, result.data["samples"][:ROWS], names[:ROWS])
    _means(means, result, comparisons[:ROWS])
    _pairs(pairs, result.data["paired"].mean(2))
    solver = f" ({result.facts['solver']})" if result.facts["solver"] else ""
    heading(
        figure, f"{result.facts['images']} images of each model from the same noise{solver}; bars: 95 % over images"
    )
    return figure


def _pictures(axis: Axes, samples: np.ndarray, names: Sequence[str]) -> None:
    """A row for each model, a column for each noise: (N,k,C,H,W) uint8."""
    bordered = np.pad(samples, ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)), constant_values=255)
    n, k, channels, height, width = bordered.shape
    canvas = bordered.transpose(0, 3, 1, 4, 2).reshape(n * height, k * width, channels)
    axis.imshow(canvas.repeat(3, axis=2) if channels == 1 else canvas, interpolation="nearest", aspect="equal")
    axis.set_yticks([height * (row + 0.5) for row in range(n)], names)
    axis.set_xticks([width * (column + 0.5) for column in range(k)], [str(column) for column in range(k)])
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("image")
    axis.set_title("each column: the same noise")


def _means(axis: Axes, result: Result, comparisons: Sequence[str]) -> None:
    """Paired and shuffled PSNR with their intervals; an infinite one at the right edge."""
    count = len(comparisons)
    finite = [result.data[f"mean_{key}"][:count] for key in ("paired", "shuffled")]
    top = max([float(value) for value in np.concatenate(finite) if np.isfinite(value)], default=50.0)
    edge = 1.25 * top
    for i, (key, word, marker) in enumerate((("paired", "same noise", "o"), ("shuffled", "other noise", "s"))):
        mean, half = result.data[f"mean_{key}"][:count], result.data[f"half_{key}"][:count]
        place = np.where(np.isfinite(mean), mean, edge)
        width = np.nan_to_num(half, nan=0.0)
        color = line_style(i).color
        axis.errorbar(place, range(count), xerr=width, color=color, linestyle="", marker=marker, capsize=3, label=word)
        for row in np.flatnonzero(np.isinf(mean)):
            axis.annotate("\N{INFINITY}", (edge, row), xytext=(6, 0), textcoords="offset points", va="center", size=12)
    if np.isinf(result.data["mean_paired"][:count]).any():
        axis.set_xlim(right=1.1 * edge)
    row_names(axis, comparisons)
    axis.set_xlabel("PSNR between models, dB")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handletextpad=0.2, columnspacing=0.8, borderpad=0)


def _pairs(axis: Axes, mean: np.ndarray) -> None:
    """PSNR of every two models (N,N), with the number in each field where there are few."""
    n = len(mean)
    inside = np.where(np.eye(n, dtype=bool), np.nan, mean)
    shown = np.where(np.isfinite(inside), inside, np.nan)
    low, high = (np.nanmin(shown), np.nanmax(shown)) if np.isfinite(shown).any() else (0.0, 1.0)
    axis.imshow(shown, cmap="Blues", vmin=low - 0.3 * (high - low) - 1, vmax=high + 0.5 * (high - low) + 1)
    for row in range(n if n <= ROWS else 0):
        for column in range(n):
            value = inside[row, column]
            text = "same" if row == column else "\N{INFINITY}" if np.isinf(value) else f"{value:.1f}"
            axis.text(
                column, row, text, ha="center", va="center", size=8 if n < 6 else 7 if n < 9 else 6, color="#222222"
            )
    numbers = [str(number) if n <= MANY or number % 10 == 0 else "" for number in range(1, n + 1)]
    axis.set_xticks(range(n), numbers)
    axis.set_yticks(range(n), numbers)
    axis.set_xlabel("number of the model")
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_title("PSNR of each pair, dB")
