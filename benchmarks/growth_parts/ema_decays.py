"""Step time against the number of averages of the weights (EMA decays): digits, the default network, 16 images."""

from __future__ import annotations

from benchmarks.growth import Points, step_times
from benchmarks.line import at_most

X, Y, ORDER, GOAL = "EMA decays", "CPU ms of a step", 0, at_most(1.25)
NUMBERS = (1, 2, 4, 8)


def points() -> Points:
    return step_times({number: [f"callbacks.ema.decays={_decays(number)}", "batch_size=16"] for number in NUMBERS})


def _decays(number: int) -> str:
    return "[" + ",".join(f"{1 - 0.001 / (k + 1):.6f}" for k in range(number)) + "]"
