"""Growth: what a step costs with more timesteps, averages and ranks, and what more images and jobs cost.

Each row is the last point over the first of one plot of growth.svg, which this run draws. Times of steps are CPU times
of trainings that take turns of 10 steps: 9 turns, or 3 with several ranks, where the time is that of the first rank, so
that two cores can represent four machines. For a sweep it is the CPU time of all its processes, once. For an evaluation
it is the bytes of `Generated` for FID and the inception score, in batches of 500 synthetic features of Inception's
size. All trainings are on digits with the default network.
"""

from __future__ import annotations

import io
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.commands import spend
from benchmarks.paired import Ratio, ratio
from benchmarks.table import Goal, Line, at_most
from benchmarks.turns import turns
from diffusion_lab.plotting import compact_svg

FIGURE = Path(__file__).resolve().parents[1] / "growth.svg"
STEPS, RANKS, TIMESTEPS, DECAYS = 10, (1, 2, 4), (1000, 2000, 4000, 8000), (1, 2, 4, 8)
JOBS, COUNTS, BATCH, DIM, CLASSES = (1, 4, 8), (1_000, 4_000, 16_000, 64_000), 500, 2048, 1008

Points = Mapping[int, list[float]]  # x -> measurement of each round


class Growth(NamedTuple):
    """A plot: its axes, the order of the reference line y_0 (x/x_0)^order (0 constant, 1 proportional, -1 divided among
    ranks), the goal of the last y over the first (None without one), and the function that measures at each x."""

    x_label: str
    y_label: str
    order: int
    goal: Goal | None
    points: Callable[[], Points]


class Panel(NamedTuple):
    """One plot with its points."""

    plot: Growth
    x: list[int]
    rounds: list[list[float]]

    @property
    def y(self) -> list[float]:
        """Medians."""
        return [statistics.median(values) for values in self.rounds]

    @property
    def growth(self) -> Ratio:
        """The last over the first, in the same rounds."""
        return ratio(self.rounds[-1], self.rounds[0])


def lines() -> Iterator[Line]:
    drawn = []
    for plot in PLOTS:
        points = plot.points()
        panel = Panel(plot, list(points), list(points.values()))
        drawn.append(panel)
        what = f"{plot.y_label}: {panel.x[-1]:,.0f} over {panel.x[0]:,.0f} {plot.x_label}"
        yield Line(what, panel.growth, plot.goal)
    draw(drawn)


def step_times(trainings: Mapping[int, Sequence[str]], rounds: int = 9) -> Points:
    """CPU time of a step in ms for the overrides of each x, interleaved."""
    seconds = turns({str(x): words for x, words in trainings.items()}, STEPS, rounds)
    return {x: [1000 * turn / STEPS for turn in seconds[str(x)]] for x in trainings}


def rank_times(batch_size: Callable[[int], int]) -> Points:
    """CPU time of a step in the first rank in ms, without waiting, for each number of ranks x."""
    words = {ranks: [f"batch_size={batch_size(ranks)}", f"trainer.devices={ranks}"] for ranks in RANKS}
    several = {ranks: [*w, "trainer.strategy=ddp_fork"] if ranks > 1 else w for ranks, w in words.items()}
    return step_times(several, rounds=3)


def _decays(number: int) -> str:
    return "[" + ",".join(f"{1 - 0.001 / (k + 1):.6f}" for k in range(number)) + "]"


def _sweep(jobs: int) -> float:
    seeds = ",".join(map(str, range(jobs)))
    with tempfile.TemporaryDirectory() as folder:
        return spend(["train", "-m", f"seed={seeds}", "max_steps=8", "~callbacks.generation"], folder).cpu


def _megabytes(count: int) -> float:
    from diffusion_lab.metrics import Batch, Generated

    generated = Generated(count, {"moments", "scores"}, feature_dim=DIM)
    samples, features, logits = torch.zeros(BATCH, 1, 1, 1), torch.randn(BATCH, DIM), torch.randn(BATCH, CLASSES)
    for first in range(0, count, BATCH):
        generated.update(Batch(range(first, first + BATCH), samples, features, logits))
    return generated.nbytes / 1e6


STEP, RANK = "CPU ms of a step", "CPU ms of a rank's step"
PLOTS = (
    Growth("EMA decays", STEP, 0, at_most(1.25), lambda: step_times(
        {number: [f"callbacks.ema.decays={_decays(number)}", "batch_size=16"] for number in DECAYS}
    )),
    Growth("ranks that share 256 images", RANK, -1, None, lambda: rank_times(lambda ranks: 256)),
    Growth("ranks of 32 images each", RANK, 0, None, lambda: rank_times(lambda ranks: 32 * ranks)),
    Growth("images", "MB of statistics", 0, at_most(1), lambda: {count: [_megabytes(count)] for count in COUNTS}),
    Growth("jobs of a sweep", "CPU seconds", 1, at_most(3.2), lambda: {jobs: [_sweep(jobs)] for jobs in JOBS}),
    Growth("timesteps T", STEP, 0, at_most(1.05), lambda: step_times(
        {steps: [f"schedule.num_timesteps={steps}", "batch_size=16"] for steps in TIMESTEPS}
    )),
)  # fmt: skip


def draw(drawn: Sequence[Panel], path: Path = FIGURE) -> None:
    """Draw one plot per panel, from 0, with its reference line."""
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
    compared = [y[0] * (x / panel.x[0]) ** panel.plot.order for x in panel.x]
    label = {0: "constant", 1: "in proportion", -1: "shared out"}[panel.plot.order]
    axis.plot(panel.x, compared, "--", color="0.55", linewidth=1, label=label)
    axis.plot(panel.x, y, "o-", color="#1f5fa8", markersize=4, linewidth=1.5, clip_on=False, label="measured")
    axis.set_xlim(0, 1.05 * panel.x[-1])
    axis.set_ylim(0, 1.25 * max(*y, *compared))
    ticks = [x for x in panel.x if x >= panel.x[-1] / 10 or x == panel.x[0]]
    axis.set_xticks(ticks, [_short(x) for x in ticks])
    axis.set_xlabel(panel.plot.x_label)
    axis.set_ylabel(panel.plot.y_label)
    way = f"{_short(panel.x[0])} to {_short(panel.x[-1])}"
    goal = "" if panel.plot.goal is None else f" (goal {panel.plot.goal})"
    axis.set_title(f"{way}: times {panel.growth.median:.2f}{goal}", loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc={0: "lower right", 1: "upper left", -1: "upper right"}[panel.plot.order])


def _short(x: float) -> str:
    return f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"
