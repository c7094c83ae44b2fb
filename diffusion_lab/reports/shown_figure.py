"""p, w and their product as a figure: by timestep above, on the axis of log SNR below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diffusion_lab.files import write_whole
from diffusion_lab.plotting import line_style, log_axis, panels, style, svg
from diffusion_lab.reports.shown import DECADES, Shown, log_snr_range, wide


def write_figure(folder: Path, found: Sequence[Shown], loss: str) -> Path:
    """`show.svg` in a folder, which is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with style():
        figure, axes = panels(3, 2, 2.9)
        for index, one in enumerate(found):
            steps, line = len(one.p), line_style(index)
            t = (np.arange(steps) + 0.5) / steps
            above = one.p * steps, one.weight, one.product * steps
            below = one.p / one.nats, one.weight, one.product / one.nats
            for axis, y in zip(axes, (*above, *below), strict=True):
                x = t if axis in axes[:3] else one.log_snr
                axis.plot(x, y, color=line.color, linestyle=line.dash, label=one.name)
        titles = "p: how often it is drawn", f"w: weight on the {loss}-loss", "p w: share of the objective"
        low, high = log_snr_range(found)
        margin = 0.05 * (high - low)
        for column, title in enumerate(titles):
            axes[column].set_title(title)
            axes[column].set_xlabel("timestep t/T (clean to noise)")
            axes[column + 3].set_xlabel("ln SNR (clean to noise)")
            axes[column + 3].set_xlim(high + margin, low - margin)
        for axis, unit in zip(
            axes, ("times 1/T", "weight", "times 1/T", *["per nat", "weight", "per nat"]), strict=True
        ):
            axis.set_ylabel(unit)
            if axis in (axes[1], axes[4]) and wide(found):
                top = max(one.weight.max() for one in found)
                axis.set_ylim(top / 10**DECADES, 2 * top)
                log_axis(axis)
            else:
                axis.set_ylim(bottom=0)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=max(1, 130 // (max(map(len, labels)) + 8)))
        path = folder / "show.svg"
        write_whole(path, svg(figure))
    return path
