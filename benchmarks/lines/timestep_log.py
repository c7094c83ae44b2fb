"""Statistics of the loss at every timestep.

`TimestepMean.update` of 128 rows, which the timestep log adds to a step, with T = 1000 and T = 4000 timesteps: three
float64 tables of size T, to which 128 numbers are added. A thousand updates are timed, which includes the additions
that are deferred over several updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_most
from diffusion_lab.metrics.timestep_mean import TimestepMean

ROWS, TIMES, ROUNDS = 128, 1000, 9


def lines() -> Iterator[Line]:
    seconds = interleaved({str(steps): _updates(steps) for steps in (1000, 4000)}, ROUNDS)
    microseconds = [1e6 * value / TIMES for value in seconds["1000"]]
    yield Line("a step of 128 rows, T = 1000", Ratio.of(microseconds), at_most(15), "us")
    yield Line("T = 4000 over T = 1000", ratio(seconds["4000"], seconds["1000"]), at_most(1.1))


def _updates(num_timesteps: int) -> Callable[[], None]:
    mean = TimestepMean(num_timesteps)
    t, loss = torch.randint(0, num_timesteps, (ROWS,)), torch.rand(ROWS)

    def run() -> None:
        for _ in range(TIMES):
            mean.update(t, loss)

    return run
