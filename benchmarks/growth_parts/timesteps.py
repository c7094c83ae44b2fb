"""Step time against the number of timesteps T: digits, the default network, 16 images, log and statistics on."""

from __future__ import annotations

from benchmarks.growth import Points, step_times
from benchmarks.line import at_most

X, Y, ORDER, GOAL = "timesteps T", "CPU ms of a step", 0, at_most(1.05)
TIMESTEPS = (1000, 2000, 4000, 8000)


def points() -> Points:
    return step_times({steps: [f"schedule.num_timesteps={steps}", "batch_size=16"] for steps in TIMESTEPS})
