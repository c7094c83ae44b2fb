"""How cost grows: a small plot for each file of `growth_parts/`, all in growth.svg.

A file there says in its docstring what is measured, and has

    X, Y     labels of the axes, with units
    ORDER    of the line to compare with, y_0 (x/x_0)^ORDER: 0 constant, 1 in proportion, -1 shared out
    GOAL     of the last y over the first; None where nothing is promised
    points() -> Points    the same number of rounds at each x
"""

from __future__ import annotations

import importlib
import io
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.chosen import files
from benchmarks.line import Goal
from benchmarks.paired import Ratio, ratio
from diffusion_lab.compact_svg import compact_svg

FIGURE = Path(__file__).resolve().parent / "growth.svg"
STEPS, RANKS = 10, (1, 2, 4)

Points = tuple[list[float], list[list[float]]]  # x, and for each x what was measured in each round


class Panel(NamedTuple):
    """One plot: what its file says, and the points that it gave."""

    name: str
    x_label: str
    y_label: str
    order: int
    goal: Goal | None
    x: list[float]
    rounds: list[list[float]]

    @property
    def y(self) -> list[float]:
        """Medians."""
        return [statistics.median(values) for values in self.rounds]

    @property
    def growth(self) -> Ratio:
        """The last over the first, of the same rounds."""
        return ratio(self.rounds[-1], self.rounds[0])


def parts() -> dict[str, ModuleType]:
    """The files of `growth_parts/`, in alphabetical order."""
    import benchmarks.growth_parts as folder

    return {name: importlib.import_module(f"benchmarks.growth_parts.{name}") for name in files(folder)}


def panels() -> Iterator[Panel]:
    """Measure one after the other."""
    for name, part in parts().items():
        yield Panel(name, part.X, part.Y, part.ORDER, part.GOAL, *part.points())


def step_times(trainings: Mapping[int, Sequence[str]], rounds: int = 9) -> Points:
    """x -> overrides; measured is the CPU time of a step in ms, in turns that the trainings take."""
    from benchmarks.turns import turns

    seconds = turns({str(x): words for x, words in trainings.items()}, STEPS, rounds)
    return [float(x) for x in trainings], [[1000 * turn / STEPS for turn in seconds[str(x)]] for x in trainings]


def rank_times(batch_size: Callable[[int], int]) -> Points:
    """x is the number of ranks, measured the CPU time of a step in the first, ms, in which waiting costs nothing."""
    words = {ranks: [f"batch_size={batch_size(ranks)}", f"trainer.devices={ranks}"] for ranks in RANKS}
    several = {ranks: [*w, "trainer.strategy=ddp_fork"] if ranks > 1 else w for ranks, w in words.items()}
    return step_times(several, rounds=3)


def draw(drawn: Sequence[Panel], path: Path = FIGURE) -> None:
    """Small multiples, each from 0, with the line that it is compared with."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "font.size": 9, "axes.titlesize": 9})
    import matplotlib.pyplot as plt

    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.3 * columns, 2.7 * rows), squeeze=False, layout="constrained")
    for axis, panel in zip(axes.flat, drawn, strict=False):
        _draw(axis, panel)
    for axis in axes.flat[len(drawn) :]:
        axis.remove()
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(compact_svg(buffer.getvalue()))
    plt.close(figure)


def _draw(axis: Any, panel: Panel) -> None:
    y = panel.y
    compared = [y[0] * (x / panel.x[0]) ** panel.order for x in panel.x]
    label = {0: "constant", 1: "in proportion", -1: "shared out"}[panel.order]
    axis.plot(panel.x, compared, "--", color="0.55", linewidth=1, label=label)
    axis.plot(panel.x, y, "o-", color="#1f5fa8", markersize=4, linewidth=1.5, clip_on=False, label="measured")
    axis.set_xlim(0, 1.05 * panel.x[-1])
    axis.set_ylim(0, 1.25 * max(*y, *compared))
    ticks = [x for x in panel.x if x >= panel.x[-1] / 10 or x == panel.x[0]]
    axis.set_xticks(ticks, [_short(x) for x in ticks])
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    way = f"{_short(panel.x[0])} to {_short(panel.x[-1])}"
    goal = "" if panel.goal is None else f" (goal {panel.goal})"
    axis.set_title(f"{way}: times {panel.growth.median:.2f}{goal}", loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc={0: "lower right", 1: "upper left", -1: "upper right"}[panel.order])


def _short(x: float) -> str:
    return f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"
