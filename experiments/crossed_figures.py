"""Draws the figures of the crossed study's page from its committed values.

    python -m experiments.crossed_figures DATA    digits or fashion_mnist (`make pages`)

`DATA-cells.svg` is the heat map of all cells with unit weighting, `DATA-curves.svg` the best cell of each schedule over
the budget, `DATA-log-snr.svg` each cell's value beside its estimate from ln SNR alone, `DATA-longer.svg` the best cell
and the papers' default on digits over four times the budget.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from diffusion_lab.files import write_whole
from diffusion_lab.plotting import label_ends, line_style, log_axis, panels, style, svg
from experiments.crossed import FOLDER, Cell, allocations_of, explained, own_prediction, predicted, values_of
from experiments.crossed_default import LONGER, best
from experiments.crossed_page import DEFAULT, first, ranked, title, values

SCHEDULES = ("cosine", "edm", "linear", "rectified_flow")  # each has one colour in all figures


def cells(data: str) -> Figure:
    """Geometric mean of every cell with unit weighting: a row for schedule and prediction, a column for the sampler."""
    from matplotlib.colors import LogNorm

    found = {cell: own for cell, own in first(values(data)).items() if cell.weighting == "unit"}
    rows = list(dict.fromkeys((cell.schedule, cell.prediction) for cell in found))
    names = list(dict.fromkeys(cell.sampler for cell in found))
    mean = np.array([[_mean(found.get(Cell(*row, name, "unit"))) for name in names] for row in rows])
    figure, (axis,) = panels(1, 1, 0.36 * len(rows) + 1.6)
    picture = axis.imshow(mean, norm=LogNorm(), cmap="viridis", aspect="auto")
    axis.grid(visible=False)
    axis.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names])
    axis.set_yticks(range(len(rows)), [f"{a}, {b}" for a, b in rows])
    axis.tick_params(length=0, labeltop=True, labelbottom=False)
    lowest = np.unravel_index(np.nanargmin(mean), mean.shape)
    middle = np.exp((np.log(np.nanmin(mean)) + np.log(np.nanmax(mean))) / 2)
    for (row, column), value in np.ndenumerate(mean):
        weight = "bold" if (row, column) == lowest else "normal"
        color = "white" if value < middle else "black"
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontweight=weight)
    for row in range(1, len(rows)):
        if rows[row][0] != rows[row - 1][0]:
            axis.axhline(row - 0.5, color="white", linewidth=4)
    bar = figure.colorbar(picture, ax=axis, label="Fréchet distance (lower is better)")
    _plain(bar.ax.yaxis)
    return figure


def curves(data: str) -> Figure:
    """The best cell of each schedule with unit weighting and the papers' default, at each evaluation: geometric means
    over the seeds."""
    found = first(values(data))
    order = ranked({cell: own for cell, own in found.items() if cell.weighting == "unit"})
    best = [next(cell for cell in order if cell.schedule == name) for name in dict.fromkeys(c.schedule for c in order)]
    shown = [*best, *([] if DEFAULT in best or DEFAULT not in found else [DEFAULT])]
    steps = _steps(data)
    at = {step: first(values_of(FOLDER / f"{data}.values.csv", step)) for step in steps}
    figure, (axis,) = panels(1, 1, 3.6)
    ends = []
    for cell in shown:
        color = line_style(SCHEDULES.index(cell.schedule)).color
        y = [_mean(at[step].get(cell)) for step in steps]
        axis.plot(steps, y, color=color, linestyle="-" if cell in best else ":", marker="o")
        ends.append((y[-1], title(cell), color))
    axis.set_xticks(steps)
    axis.set_xlabel("optimizer steps")
    axis.set_ylabel("Fréchet distance")
    log_axis(axis)
    figure.get_layout_engine().set(rect=(0, 0, 0.72, 1))  # type: ignore[union-attr]
    figure.canvas.draw()
    label_ends(axis, ends)
    return figure


def log_snr(data: str) -> Figure:
    """Each cell's value beside its estimate from the other schedules' cells with the nearest density on ln SNR."""
    y, estimate, which = predicted(first(values(data)), allocations_of(FOLDER / f"{data}.allocations.csv"))
    figure, axes = panels(3, 1, 3.4, sharex=True, sharey=True)
    schedules = [name for name in SCHEDULES if any(cell.schedule == name for cell in which)]
    for axis, kind in zip(axes, ("eps", "x0", "own"), strict=True):
        for schedule in schedules:
            chosen = [i for i, c in enumerate(which) if c.schedule == schedule and own_prediction(c) == kind]
            color = line_style(SCHEDULES.index(schedule)).color
            axis.scatter(np.exp(estimate[chosen]), np.exp(y[chosen]), s=22, color=color, label=schedule)
        axis.set_title({"own": "v, velocity or F"}.get(kind, kind))
        axis.set_xscale("log")
        _plain(axis.xaxis)
        log_axis(axis)
        axis.axline((1, 1), (2, 2), color="#888888", linewidth=1)
        axis.set_xlabel("distance estimated from ln SNR")
    axes[0].set_ylabel("Fréchet distance")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels))
    figure.suptitle(f"R² = {explained(y, estimate):.2f} on schedules that the estimate has not seen", size=9.5)
    return figure


def longer(_: str) -> Figure:
    """The best cell and the papers' default over four times the budget, a line for each seed.

    The level is the geometric mean at the default's end.
    """
    steps = _steps(LONGER)
    at = {step: values_of(FOLDER / f"{LONGER}.values.csv", step) for step in steps}
    figure, (axis,) = panels(1, 1, 3.6)
    ends = []
    for cell in (best(), DEFAULT):
        line = line_style(SCHEDULES.index(cell.schedule))
        for seed in at[steps[-1]][cell]:
            axis.plot(steps, [at[step][cell][seed] for step in steps], color=line.color, linestyle=line.dash)
        ends.append((_mean(at[steps[-1]][cell]), title(cell), line.color))
    axis.axhline(ends[1][0], color="#888888", linewidth=1)
    axis.text(steps[-1] / 2, ends[1][0], "mean end of the papers' default", color="#666666", va="bottom", size=8)
    axis.set_xlim(0, steps[-1])
    axis.set_xlabel("optimizer steps")
    axis.set_ylabel("Fréchet distance")
    log_axis(axis)
    figure.get_layout_engine().set(rect=(0, 0, 0.72, 1))  # type: ignore[union-attr]
    figure.canvas.draw()
    label_ends(axis, ends)
    return figure


FIGURES: dict[str, Callable[[str], Figure]] = {"cells": cells, "curves": curves, "log-snr": log_snr, "longer": longer}


def main(arguments: list[str]) -> int:
    """Write the figures of a data set; returns 0."""
    for name, draw in FIGURES.items():
        with style():
            write_whole(FOLDER / f"{arguments[0]}-{name}.svg", svg(draw(arguments[0])))
    return 0


def _plain(axis: Axis) -> None:
    """Logarithmic ticks at 1, 2 and 5, without exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _mean(own: dict[int, float] | None) -> float:
    return float(np.exp(np.log(list(own.values())).mean())) if own else np.nan


def _steps(data: str) -> list[int]:
    """The steps at which the study evaluates."""
    with open(FOLDER / f"{data}.values.csv", newline="", encoding="utf-8") as file:
        return sorted({int(line["step"]) for line in csv.DictReader(file)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
