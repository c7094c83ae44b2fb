"""Figure of the analysis `hessian`: the density of the eigenvalues, and the extreme ones by rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, over_seeds
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
    left.set_ylabel("density of the eigenvalues")
    left.set_title(f"thin: from each of {result.facts['vectors']} start vectors; dotted: one eigenvalue")
    left.axhline(_of_one(result), color="#999999", linewidth=0.8, linestyle=":")
    right.axhline(0, color="#999999", linewidth=0.8)
    right.set_yscale("symlog", linthresh=_threshold(result))
    right.set_ylim(_wider(right.get_ylim()))
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_xlabel("rank")
    right.set_title("\N{BLACK UP-POINTING TRIANGLE} largest and \N{BLACK DOWN-POINTING TRIANGLE} smallest eigenvalues")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    heading(figure, heading_of(result))
    if len(result.facts["groups"]) > 1:
        handles, names = right.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=3, handlelength=3)
    return figure


def heading_of(result: Result) -> str:
    """The loss of each group, what the bars are, and a warning where the networks differ in size."""
    groups, losses = result.facts["groups"], result.facts["losses"]
    said = dict.fromkeys(_loss(losses[group["members"][0]]) for group in groups)
    bars = band_words([group["members"] for group in groups], "") if _several(groups) else ""
    bars = bars.partition(";")[0]
    alone = "" if all(len(group["members"]) > 1 for group in groups) else "bounds of the numerical error"
    words = " and, of one seed, ".join(filter(None, [bars, alone]))
    sizes = set(result.data["parameters"].tolist())
    note = "; networks of different size: do not compare the densities' widths" if len(sizes) > 1 else ""
    return f"Hessian of {' or '.join(said)}, {result.facts['images']} images; bars: {words}{note}"


def _several(groups: Sequence[dict[str, Any]]) -> bool:
    return any(len(group["members"]) > 1 for group in groups)


def _loss(names: Sequence[str]) -> str:
    """`the mean loss at t = 0, 10, 50`, or the name of a single one."""
    if len(names) == 1:
        return f"the {names[0]}" if " = " not in names[0] else f"the loss at {names[0]}"
    return f"the mean loss at t = {', '.join(name.removeprefix('t = ') for name in names)}"


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
        values = np.where(values * values[0] > 0, values, np.nan)  # beyond 0 a Ritz value is inside the spectrum
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
