"""The figure of `prediction_ability`: the error by timestep, its ratio to the best, and the hue errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffusion_lab.analyses.base import Result
from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.plotting import heading, line_style, log_axis, panels, row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figure_of(result: Result) -> Figure:
    """Two panels, and a third for images with three channels."""
    coloured = "hue_error" in result.data
    figure, axes = panels(3 if coloured else 2, height=3.8)
    t, lines, mean = result.data["timesteps"], result.facts["lines"], result.data["line_mean"]
    least = mean.min(0)
    for i, (line, middle, half) in enumerate(zip(lines, mean, result.data["line_half"], strict=True)):
        color, dash = line_style(i)
        low = np.maximum(middle - half, middle / 10)  # a logarithmic axis has no zero
        for axis, unit in zip(axes, (1.0, least), strict=False):
            axis.plot(t, middle / unit, color=color, linestyle=dash, label=line["name"] or "x0-space error")
            axis.fill_between(t, low / unit, (middle + half) / unit, color=color, alpha=0.2, linewidth=0)
    for axis in axes[:2]:
        log_axis(axis)
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlim(t[0], t[-1])
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_xlabel("timestep t")
    axes[0].set_title("mean square error of the estimate of x0")
    axes[1].set_title("the same, divided by the least of all lines")
    axes[1].set_ylim(bottom=min(0.7, float((mean / least).max()) ** -0.08))  # room for the strip
    if len(lines) > 1:
        _strip(axes[1], result)
    if coloured:
        _hue(axes[2], result)
    words = band_words([line["rows"] for line in lines], f"{result.facts['images']} test images")
    strip = "; strip below: the best line, faint where another may be as good" if len(lines) > 1 else ""
    heading(figure, f"common noise; shaded: {words}{strip}")
    handles, names = axes[0].get_legend_handles_labels()
    columns = max(1, 130 // (max(map(len, names)) + 8))
    figure.legend(handles, names, loc="outside lower left", ncols=columns, handlelength=3)
    return figure


def _strip(axis: Axes, result: Result) -> None:
    """The colour of the best line along the axis, faint where it is not better than all others."""
    t, width = result.data["timesteps"], np.diff(result.data["timesteps"], append=result.data["timesteps"][-1] + 1)
    for start, size, best, sure in zip(t, width, result.data["best"], result.data["decided"], strict=True):
        axis.axvspan(
            start, start + size, ymax=0.04, color=line_style(best).color, alpha=1.0 if sure else 0.25, linewidth=0
        )


def _hue(axis: Axes, result: Result) -> None:
    """The hue error of each method's samples."""
    groups = result.facts["groups"]
    for row, group in enumerate(groups):
        middle, half = with_error(result.data["hue_error"], result.data["hue_standard_error"], group["members"])
        axis.errorbar(middle, row, xerr=half, color=line_style(row).color, marker="o", capsize=3)
    row_names(axis, [group["name"] or "samples" for group in groups])
    axis.set_xlim(left=0)
    axis.set_xlabel("hue error, grey levels")
    against = "to their truths" if result.facts["paired"] else "of the mean colour"
    axis.set_title(f"tint of {result.facts['samples']} samples, {against}")
