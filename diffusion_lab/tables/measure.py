"""What a table measures: one number for each cell of an entry.

The node `measure` of a table's yaml names the class, a subclass of `Measure`, with its arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.reports.comparison.metrics import family
from diffusion_lab.runs.curve import finite
from diffusion_lab.runs.run import Run
from diffusion_lab.tables.table import TableColumn, TableRow
from diffusion_lab.verdicts import Scale

# (name of an analysis, its runs, further words of its command line) -> its facts and its arrays by name
Analyse = Callable[[str, Sequence[Run], Sequence[str]], tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass(frozen=True)
class Entry:
    """A row in a column for one seed, trained.

    Args:
        row, column, seed: which.
        runs: one finished run for each model of the row.
        start: the run from whose weights they started; None: new weights.
        steps: optimizer steps of the cells at this scale.
        analyse: computes an analysis of runs, or reads it if it was computed before.
    """

    row: TableRow
    column: TableColumn
    seed: int
    runs: tuple[Run, ...]
    start: Run | None
    steps: tuple[int, ...]
    analyse: Analyse


class Measured(NamedTuple):
    """The numbers of an entry.

    Attributes:
        quantity: its name, which differs where two numbers cannot be compared, e.g. fd1k_digits.
        values: one for each cell; None where there is none.
        protocol: how it was measured, plain values.
    """

    quantity: str
    values: Sequence[float | None]
    protocol: Mapping[str, Any] = {}


class Measure(ABC):
    """A measure.

    Attributes:
        better: lower or higher; "" if neither is better.
        scale: ratio for positive numbers that vary in proportion to their size, as distances do; else difference.
    """

    better: str = "lower"
    scale: Scale = "difference"

    @abstractmethod
    def __call__(self, entry: Entry) -> Measured:
        """The numbers of an entry."""


class MetricAtSteps(Measure):
    """The metric that the run measured of the average weights at each evaluation, with its solver and the latents of
    its seed; not what `evaluate` has measured since. A value that is not finite, as of a run that diverged, is none.

    Args:
        metric: name of a file in conf/metric; fid is called fd unless the extractor is Inception.
        better: lower or higher.
        scale: ratio or difference: how rows are compared.
    """

    def __init__(self, metric: str = "fid", better: str = "lower", scale: Scale = "ratio") -> None:
        self.metric, self.better, self.scale = metric, better, scale

    def __call__(self, entry: Entry) -> Measured:
        run = entry.runs[0]
        families = {self.metric, {"fid": "fd", "kid": "kd"}.get(self.metric, self.metric)}
        name = next((name for name in run.metric_names if family(name) in families), self.metric)
        curve = run.curve(f"metrics/{name}")
        found = dict(zip(curve.steps.tolist(), map(finite, curve.values.tolist()), strict=True))
        values = [found.get(step) for step in entry.steps]
        return Measured(name, values, run.protocol(name))


class Analysed(Measure):
    """An entry of an array of `diffusion-lab analyze`.

    Args:
        analysis: name of a file in conf/analysis.
        array: name of an array of its data.npz.
        words: further words of its command line, e.g. weights=raw.
        index: which entry of the array, one integer for each axis; what the row has under `pick: {index: ..}` comes
            first. A shorter index than the array has axes stands for the mean over the others.
        quantity: name of the number.
        better: lower or higher; "" if neither is better.
    """

    def __init__(
        self,
        analysis: str,
        array: str,
        words: Sequence[str] = (),
        index: Sequence[int] = (),
        quantity: str = "",
        better: str = "higher",
    ) -> None:
        self.analysis, self.array, self.words, self.index = analysis, array, tuple(words), tuple(index)
        self.quantity, self.better = quantity or array, better

    def __call__(self, entry: Entry) -> Measured:
        facts, data = entry.analyse(self.analysis, entry.runs, self.words)
        array: Any = np.asarray(data[self.array], np.float64)
        index = tuple(entry.row.pick.get("index", self.index))
        value = float(np.mean(array[index]))
        return Measured(self.quantity, [value] * len(entry.column.at), dict(facts.get("protocol", {})))


class LossRatio(Measure):
    """Mean over a range of timesteps of log10(loss / loss of the starting run), each at the end of its training.

    Args:
        ranges: column -> first and last share of T.
        key: logged list over equal ranges of timesteps.
    """

    better = "lower"

    def __init__(self, ranges: Mapping[str, Sequence[float]], key: str = "val/loss_t") -> None:
        self.ranges, self.key = dict(ranges), key

    def __call__(self, entry: Entry) -> Measured:
        if entry.start is None:
            return Measured("", [None] * len(entry.column.at))
        ours, theirs = (run.curve(self.key).values[-1] for run in (entry.runs[0], entry.start))
        first, last = (round(share * len(ours)) for share in self.ranges[entry.column.name])
        change = float(np.nanmean(np.log10(ours[first:last] / theirs[first:last])))
        return Measured("log10 of the loss over the start's", [change] * len(entry.column.at))
