"""Figure of the analysis `interpolation`: a panel per group, and the heights of all groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.plotting import WIDTH, line_style, log_if_wide, panel_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

MOST = 6  # panels of groups
COLUMNS = 3
HEIGHT = 3.4  # inches of a row


def lines(result: Result) -> Figure:
    """Losses at each timestep and their average along the line, and what the average has above the chord."""
    from matplotlib.figure import Figure

    groups = result.facts["groups"][:MOST]
    columns = min(len(groups) + 1, COLUMNS)
    rows = -(-(len(groups) + 1) // columns)
    figure = Figure(figsize=(WIDTH, HEIGHT * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for g, (axis, group) in enumerate(zip(axes, groups, strict=False)):
        _losses(axis, result, group)
        title = group["name"] or f"loss on the line, mean over {result.facts['images']} images"
        panel_title(axis, title, line_style(g).color if len(groups) > 1 else "#222222", columns)
    _heights(axes[len(groups)], result, groups)
    for axis in axes[len(groups) + 1 :]:
        axis.set_visible(False)
    return figure


def _losses(axis: Axes, result: Result, group: dict[str, Any]) -> None:
    import matplotlib

    data, facts, first = result.data, result.facts, group["pairs"][0]
    alpha, names = data["alpha"], facts["names"][first]
    curves = np.stack([data[f"losses_{p}"].mean(0) for p in group["pairs"]]).mean(0).T  # (K,A)
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(names)))
    for curve, name, color in zip(curves, names, colors, strict=True):
        axis.plot(alpha, curve, color=color if len(names) > 1 else "#222222", linewidth=1.3, label=name)
    average = curves.mean(0)
    if len(names) > 1:
        axis.plot(alpha, average, color="#222222", linewidth=2.4, label="average")
    ends = [int(np.flatnonzero(alpha == end)[0]) for end in (0, 1)]
    axis.plot(alpha[ends], average[ends], color="#222222", linestyle="", marker="o", markersize=6)
    log_if_wide(axis, [curves])
    b, a = facts["ends"][first]
    axis.set_ylabel("loss")
    axis.set_xlabel(f"alpha\n0: {_short(b)}    1: {_short(a)}")
    axis.legend(fontsize=7.5, ncols=2 if len(names) > 4 else 1, loc="upper center", handlelength=1.5)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.45 if axis.get_yscale() == "log" else high + 0.35 * (high - low))


def _heights(axis: Axes, result: Result, groups: list[dict[str, Any]]) -> None:
    data = result.data
    inside = (data["alpha"] >= 0) & (data["alpha"] <= 1)
    alpha = data["alpha"][inside]
    for g, group in enumerate(groups):
        members = group["pairs"]
        mean, half = with_error(data["height"][:, inside], data["height_standard_error"][:, inside], members)
        color, dash = line_style(g)
        axis.plot(alpha, mean, color=color, linestyle=dash, label=group["name"])
        axis.fill_between(alpha, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
    axis.axhline(0, color="#222222", linewidth=1)
    axis.set_xlabel("alpha")
    axis.set_title("average loss \N{MINUS SIGN} line between its ends;\nabove 0: a barrier")
    words = band_words([group["pairs"] for group in groups], f"{result.facts['images']} images")
    axis.annotate(
        f"shaded: {words}", (0, 0), xycoords="axes fraction", xytext=(4, 4), textcoords="offset points", size=7.5
    )
    if len(groups) > 1:
        axis.legend(fontsize=7.5)


def _short(name: str) -> str:
    """A name that fits below a panel."""
    return name if len(name) <= 24 else f"{name[:10]}\N{HORIZONTAL ELLIPSIS}{name[-12:]}"
