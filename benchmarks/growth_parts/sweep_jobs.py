"""A sweep's time against the number of its jobs: digits, 8 steps each, one job at a time, all processes together."""

from __future__ import annotations

import tempfile

from benchmarks.commands import spend
from benchmarks.growth import Points
from benchmarks.line import at_most

X, Y, ORDER, GOAL = "jobs of a sweep", "CPU seconds", 1, at_most(3.2)
JOBS = (1, 4, 8)


def points() -> Points:
    return [float(jobs) for jobs in JOBS], [[_seconds(jobs)] for jobs in JOBS]


def _seconds(jobs: int) -> float:
    seeds = ",".join(map(str, range(jobs)))
    with tempfile.TemporaryDirectory() as folder:
        return spend(["train", "-m", f"seed={seeds}", "max_steps=8", "~callbacks.generation"], folder).cpu
