"""Draws what samplers and weightings train on, for their pages: `docs/options/GROUP/NAME.svg`.

    python -m experiments.option_figures      (`make pages`)

By timestep and on ln SNR, on the linear and the cosine schedule with eps, and with what the option's own command sets
beside it. Of a sampler that learns or changes with the step and is in the crossed study, it is the share of the
objective that was measured, mean over its runs, beside that of uniform. Others that change are shown at step 0 and
after all changes; others that learn have no figure, since there is no distribution before training, and neither has one
whose command names a file. Wrappers have none either: around samplers they change how p is drawn and not p, and around
weightings they multiply by what depends on a row's loss, or is learned.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import described
from diffusion_lab.cli.path_arguments import path_arguments
from diffusion_lab.cli.show_numbers import numbers_before_training
from diffusion_lab.files import write_whole
from diffusion_lab.plotting import line_style, log_axis, log_snr_axis, panels, style, svg
from diffusion_lab.reports.timestep_numbers import TimestepNumbers, log_snr_range, wide
from experiments.crossed import EDGES, FOLDER, Cell, allocations_of
from experiments.option_pages import DRAWN, beside
from experiments.option_pages import FOLDER as PAGES

SCHEDULES = ("cosine", "linear")
POINTS = 120  # of a curve, along t and again along ln SNR
LATE = 10**6  # a step after all changes by a plan that needs no run
HEIGHT = 2.5  # inches
LEARNS = "p is the one before training"
BASE = ["base=ddpm", "dataset=digits"]


def drawn(group: str, name: str) -> Figure | None:
    """The figure of an option; None for one that has none."""
    found = [both for schedule in SCHEDULES if (both := _shown(group, name, schedule))]
    fixed = bool(found) and all(len(both) == 1 for both in found)
    if not fixed and group == "sampler" and (own := _measured(name)):
        return _averaged(own, _measured("uniform"))
    return _known(group, found) if found else None


def _shown(group: str, name: str, schedule: str) -> list[TimestepNumbers]:
    """The numbers at step 0, and those after all changes if they differ; none for an option without a figure."""
    about = described(group, name, [conf_dir()])
    around = any(part == group for part, _ in about.option.parts.values())  # others, which have figures
    reads = {f"{group}.{key}" for key, kind in path_arguments(about.option.target).items() if kind == "read"}
    if around or any(word.partition("=")[0] in reads for word in beside(about.option)):
        return []
    cfg = compose_train([*BASE, f"schedule={schedule}", about.option.setting, *beside(about.option)], Path("runs"))
    one, late = (numbers_before_training(schedule, cfg, step, "eps", []) for step in (0, LATE))
    if one.note.startswith(LEARNS):
        return []
    if np.allclose(one.p, late.p) and np.allclose(one.weight, late.weight):
        return [one]
    return [replace(one, name=f"{schedule}, step 0"), replace(late, name=f"{schedule}, after all changes")]


def _known(group: str, schedules: list[list[TimestepNumbers]]) -> Figure:
    """p, or the weight on the eps-loss, by timestep and on ln SNR."""
    figure, (left, right) = panels(2, 1, HEIGHT)
    found = [one for both in schedules for one in both]
    for index, one in enumerate(found):
        place = next(k for k, both in enumerate(schedules) if any(one is other for other in both))
        color, steps = line_style(place).color, len(one.p)
        along = np.interp(np.linspace(*one.log_snr[[-1, 0]], POINTS), one.log_snr[::-1], np.arange(steps)[::-1])
        at = np.unique([*np.linspace(0, steps - 1, POINTS).astype(int), *along.astype(int)])
        t = (np.arange(steps) + 0.5) / steps
        y = (one.p * steps, one.p / one.nats) if group == "sampler" else (one.weight, one.weight)
        for axis, x, values in zip((left, right), (t, one.log_snr), y, strict=True):
            dash = ("-", (0, (5, 3)), ":", "-.")[index]  # a line below another one is seen through its gaps
            axis.plot(x[at], values[at], color=color, linestyle=dash, label=one.name)
    log_snr_axis(right, *log_snr_range(found))
    left.set_ylabel("p(t), 1 is uniform" if group == "sampler" else "weight (eps-loss)")
    right.set_ylabel("p per unit of ln SNR" if group == "sampler" else "")
    for axis in (left, right):
        if group == "weighting" and wide(found):
            log_axis(axis)
        else:
            axis.set_ylim(bottom=0)
    return _labelled(figure, left, right)


def _measured(name: str) -> dict[str, np.ndarray]:
    """schedule -> share of the objective in each bin of ln SNR, of the study's runs with eps and unit weighting."""
    everything = allocations_of(FOLDER / "digits.allocations.csv")
    cells = {schedule: Cell(schedule, "eps", name, "unit") for schedule in SCHEDULES}
    return {schedule: everything[cell] for schedule, cell in cells.items() if cell in everything}


def _averaged(own: dict[str, np.ndarray], uniform: dict[str, np.ndarray]) -> Figure:
    figure, (axis,) = panels(1, 1, HEIGHT)
    for index, (schedule, share) in enumerate(own.items()):
        line = line_style(index)
        axis.stairs(share / np.diff(EDGES), EDGES, color=line.color, linewidth=1.8, label=schedule)
        beside = {"linestyle": ":", "linewidth": 1.2, "label": f"{schedule}, uniform"}
        axis.stairs(uniform[schedule] / np.diff(EDGES), EDGES, color=line.color, **beside)
    log_snr_axis(axis, EDGES[0], EDGES[-1])
    axis.set_ylim(bottom=0)
    axis.set_ylabel("objective\nper unit of ln SNR")
    return _labelled(figure, axis, axis)


def _labelled(figure: Figure, left: Axes, right: Axes) -> Figure:
    if left is not right:
        left.set_xlabel("timestep t/T (clean to noise)")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels))
    return figure


def write(group: str, name: str) -> None:
    """Write the figure of an option, if it has one and the file shows other numbers."""
    path = PAGES / group / f"{name}.svg"
    with style():
        figure = drawn(group, name)
        picture = None if figure is None else svg(figure)
    if picture is not None and not (path.is_file() and alike(path.read_bytes(), picture)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, picture)
        print(f"written: {path.relative_to(PAGES.parents[1])}")


def alike(one: bytes, other: bytes) -> bool:
    """Whether two pictures show the same: equal texts, and all numbers within half a unit, for the last digit is the
    machine's. The names of clip paths and markers do not count: Matplotlib makes them from all digits."""
    (text, left), (beside, right) = _read(one), _read(other)
    return text == beside and np.allclose(left, right, rtol=0, atol=0.5)


def _read(picture: bytes) -> tuple[list[bytes], list[float]]:
    """What stands between the numbers, and the numbers."""
    unnamed = re.sub(rb"\b[pm][0-9a-f]{10}\b", b"", picture)
    number = rb"-?\d+\.?\d*"
    return re.split(number, unnamed), [float(one) for one in re.findall(number, unnamed)]


def main() -> int:
    """Write the figures that are missing or show other numbers; returns 0."""
    for group in DRAWN:
        for name in files.options(group, [conf_dir()]):
            write(group, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
