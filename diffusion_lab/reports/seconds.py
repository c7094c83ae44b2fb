"""The snapshots of a run with the seconds at which they were reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.run import Run


class Timed(NamedTuple):
    """A curve, and a curve of the same snapshots whose values are seconds."""

    curve: Curve
    clock: Curve


def only_training(runs: Sequence[Run]) -> bool:
    """Whether all of the runs that have recorded a time have recorded that of training without evaluations."""
    timed = [run for run in runs if run.whole_clock is not None]
    return bool(timed) and all(run.training_clock is not None for run in timed)


def time_of(run: Run, key: str, alone: bool) -> Timed | None:
    """The curve of a logged key with its time; None if the run has no such curve, or no such time.

    Args:
        run: the run.
        key: of metrics.jsonl, one number per step.
        alone: the time of training without evaluations, or all of it.
    """
    curve, clock = run.curve(key), run.training_clock if alone else run.whole_clock
    if clock is None or curve.values.ndim != 1 or not len(curve.steps):
        return None
    return Timed(curve, Curve(curve.steps, curve.images, clock.at(curve.steps)))
