"""The figure of `interdependence`: for each group the matrix, and the change at single timesteps of some windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.plotting import heading, line_style, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

LINEAR = 1.0  # percent, below which the scales are linear


def draw_matrices(result: Result) -> Figure:
    """A row of two panels for each group."""
    facts = result.facts
    figure, axes = panels(2, len(facts["groups"]), height=4.4)
    largest = 100 * float(np.abs(result.data["relative"]).max())
    for i, group in enumerate(facts["groups"]):
        image = _matrix(axes[2 * i], result, group, max(largest, 2 * LINEAR))
        bar = figure.colorbar(image, ax=axes[2 * i], shrink=0.8, format=_signed)
        bar.set_label("change of the loss, %")
        _curves(axes[2 * i + 1], result, group)
    members = [group["members"] for group in facts["groups"]]
    bands = band_words(members, "the repeats")
    heading(
        figure,
        f"{facts['steps']} steps of {facts['batch_size']} images inside one of {facts['num_windows']} windows of "
        f"{facts['windows']}; {facts['images']} test images, {facts['repeats']} repeats; shaded: {bands}",
    )
    return figure


def _matrix(axis: Axes, result: Result, group: dict[str, Any], largest: float) -> Any:
    """Rows: the trained window; columns: the evaluated one."""
    from matplotlib.colors import SymLogNorm

    percent = 100 * result.data["relative"][group["members"]].mean(0)
    edges = result.data["edges"]
    names = [f"{a}\N{EN DASH}{b - 1}" if b - a > 1 else str(a) for a, b in zip(edges, edges[1:], strict=False)]
    image = axis.imshow(percent, cmap="RdBu_r", norm=SymLogNorm(LINEAR, vmin=-largest, vmax=largest, base=10))
    shade = np.asarray(image.norm(percent))
    size = (7.5 if largest < 100 else 6.5) if len(names) <= 10 else 5
    for (w, v), value in np.ndenumerate(percent) if len(names) <= 20 else ():
        dark = not 0.15 < shade[w, v] < 0.85
        axis.text(v, w, _short(value), ha="center", va="center", size=size, color="white" if dark else "black")
    places = range(len(names))
    axis.set_xticks(places, names, rotation=60, ha="right", size=size)
    axis.set_yticks(places, names, size=size)
    axis.grid(False)
    axis.set_xlabel("evaluated timesteps")
    axis.set_ylabel("trained timesteps")
    name = f"{group['name']}: " if group["name"] else ""
    axis.set_title(f"{name}change of the loss in %; diagonal: the trained window")
    return image


def _curves(axis: Axes, result: Result, group: dict[str, Any]) -> None:
    """Change over the loss before at each evaluated timestep, with its band."""
    data, edges = result.data, result.data["edges"]
    change = 100 * data["change"] / data["before"][:, None, None]  # (M,R,W,P)
    error = change.std(1, ddof=1) / change.shape[1] ** 0.5
    mean, half = with_error(change.mean(1), error, group["members"])
    for i, w in enumerate(result.facts["shown"]):
        style, t = line_style(i), data["timesteps"]
        label = f"trained in window {w}, t = {edges[w - 1]} to {edges[w] - 1}"
        axis.plot(t, mean[w - 1], color=style.color, linestyle=style.dash, label=label)
        low, high = mean[w - 1] - half[w - 1], mean[w - 1] + half[w - 1]
        axis.fill_between(t, low, high, color=style.color, alpha=0.12, linewidth=0)
        inside = (t >= edges[w - 1]) & (t < edges[w])
        axis.plot(t[inside], mean[w - 1][inside], color=style.color, linewidth=5, alpha=0.5, solid_capstyle="butt")
    axis.axhline(0, color="#222222", linewidth=0.8)
    axis.set_yscale("symlog", linthresh=LINEAR)
    axis.yaxis.set_major_formatter(_signed)
    if edges[1] - edges[0] < edges[-1] / 50:
        axis.set_xscale("symlog", linthresh=10)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlim(0, edges[-1])
    axis.set_xlabel("timestep t")
    axis.set_title("change of the loss in % at t; thick: the trained window")
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def _signed(value: float, _: object) -> str:
    return f"{value:+g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def _short(value: float) -> str:
    text = f"{value:+.1f}" if abs(value) < 9.95 else f"{value:+.0f}" if abs(value) < 999.5 else f"{value / 1000:+.1f}k"
    return text.replace("-", "\N{MINUS SIGN}")
