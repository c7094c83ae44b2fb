"""Figure of the analysis `hessian`: the density of the eigenvalues, and the extreme ones by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import over_seeds
from diffusion_lab.plotting import heading, line_style, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result


def spectrum(result: Result) -> Figure:
    """Left the density, right the eigenvalues."""
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = panels(2, height=3.8)
    for g, group in enumerate(result.facts["groups"]):
        drawn = line_style(g)
        _density(left, result, group, drawn.color, drawn.dash)
        _ranks(right, result, group, drawn.color)
    lowest = 0.3 * _of_one(result)
    left.set_yscale("log")
    left.set_ylim(lowest, 3 * float(result.data["density"].max()))
    left.axvline(0, color="#999999", linewidth=0.8)
    left.set_xlabel("eigenvalue")
    left.set_ylabel("share of the eigenvalues per unit")
    left.set_title(f"density; thin: each of {result.facts['vectors']} start vectors; dotted: a single eigenvalue")
    left.axhline(_of_one(result), color="#999999", linewidth=0.8, linestyle=":")
    right.axhline(0, color="#999999", linewidth=0.8)
    right.set_yscale("symlog", linthresh=_threshold(result))
    right.set_ylim(_wider(right.get_ylim()))
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_xlabel("rank")
    right.set_title("eigenvalues by signed size: \N{BLACK UP-POINTING TRIANGLE} largest, "
                    "\N{BLACK DOWN-POINTING TRIANGLE} smallest; bars: error bounds")  # fmt: skip
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    losses = result.facts["losses"]
    of = f"mean loss at {', '.join(losses)}" if len(losses) > 1 else losses[0]
    sizes = sorted(set(result.data["parameters"].tolist()))
    note = "" if len(sizes) == 1 else "; the density's spread depends on the number of parameters: do not compare it"
    heading(figure, f"Hessian of the {of}, {result.facts['images']} images{note}")
    if len(result.facts["groups"]) > 1:
        handles, names = right.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=3, handlelength=3)
    return figure


def _density(axis: Axes, result: Result, group: dict[str, Any], color: str, dash: str) -> None:
    grid, members = result.data["eigenvalue"], group["members"]
    each = result.data["density"][members]  # (m,V,G)
    for line in each.reshape(-1, len(grid)):
        axis.plot(grid, line, color=color, linewidth=0.6, alpha=0.5)
    axis.plot(grid, each.mean((0, 1)), color=color, linestyle=dash)


def _ranks(axis: Axes, result: Result, group: dict[str, Any], color: str) -> None:
    size, members = result.data["parameters"][group["members"][0]], group["members"]
    for key, marker in (("largest", "^"), ("smallest", "v")):
        values, half = over_seeds(result.data[key], members)
        half = result.data[f"{key}_error"][members[0]] if len(members) == 1 else half
        name = f"{group['name'] or 'model'}, {size:,} parameters" if key == "largest" else None
        rank = 1 + np.arange(len(values))
        axis.errorbar(rank, values, half, color=color, marker=marker, linestyle="", markersize=5, label=name)


def _of_one(result: Result) -> float:
    """Height of the density of a single eigenvalue of the largest network."""
    return float(1 / (result.data["parameters"].max() * result.data["width"] * np.sqrt(2 * np.pi)))


def _wider(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits that leave room beyond the outermost markers of a logarithmic axis."""
    return (limits[0] * (2 if limits[0] < 0 else 0.5), limits[1] * (2 if limits[1] > 0 else 0.5))


def _threshold(result: Result) -> float:
    """Below this magnitude the axis of the eigenvalues is linear."""
    strongest = np.nanmax(np.abs(result.data["by_magnitude"]))
    return 10.0 ** np.floor(np.log10(max(strongest, 1e-300))) / 100
