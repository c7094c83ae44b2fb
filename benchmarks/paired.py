"""Interleaved measurements on one machine, and the ratios of their times.

The speed of a shared machine drifts from minute to minute. Tasks are therefore interleaved, A B C A B C ..., with one
thread and in CPU seconds, and ratios are taken only between turns of the same round, which are close in time:

    ratio = median over rounds of  seconds(A, round)/seconds(B, round)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Ratio(NamedTuple):
    """Median, minimum and maximum over n rounds."""

    median: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        spread = "n=1" if self.n == 1 else f"{_short(self.low)}, {_short(self.high)}"
        return f"{_short(self.median)} [{spread}]"

    @staticmethod
    def of(values: Sequence[float]) -> Ratio:
        """From one value per round."""
        return Ratio(statistics.median(values), min(values), max(values), len(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """ours/theirs for turns of the same rounds, in order."""
    return Ratio.of([a / b for a, b in zip(ours, theirs, strict=True)])


def interleaved(
    tasks: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, list[float]]:
    """Seconds of each turn of each task: name -> one number per round.

    Args:
        tasks: name -> function to run.
        rounds: measured turns of each task.
        warmup: turns of each task before them, which are not measured.
        clock: in seconds; by default the CPU time of this thread, which misses other threads.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(warmup + rounds):
        for name, task in tasks.items():
            start = clock()
            task()
            seconds[name].append(clock() - start)
    return {name: values[warmup:] for name, values in seconds.items()}


def _short(value: float) -> str:
    """At least three significant digits: 1.05, 12.3, 480."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
