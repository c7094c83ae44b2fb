"""The speed-up of one group of runs over another, paired by seed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from diffusion_lab.reports.directions import directed, rising
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.hours import same_hours
from diffusion_lab.reports.seconds import only_training, time_of
from diffusion_lab.reports.smooth_course import Course
from diffusion_lab.reports.speedup import SpeedUp, speed_up
from diffusion_lab.reports.tables import protocols, ruler
from diffusion_lab.runs.run import Run

SNAPSHOTS = 4  # fewer are not smoothed but joined by a line, in which their noise is all of the answer


class OfRuns(NamedTuple):
    """A speed-up, or the reason why there is none.

    Attributes:
        found: the speed-up, None if there is none.
        why: the reason, "" with a speed-up.
        left_out: common seeds with fewer than `SNAPSHOTS` snapshots in one of the runs.
        courses: (baseline's, method's) curve of each factor.
    """

    found: SpeedUp | None
    why: str = ""
    left_out: int = 0
    courses: tuple[tuple[Course, Course], ...] = ()


def in_images(base: Group, own: Group, metric: str) -> OfRuns:
    """The factor of images, over the seeds that both have finished.

    Args:
        base: the baseline.
        own: the method.
        metric: an evaluation metric, or a logged key such as val/loss.
    """

    def course(run: Run) -> Course:
        curve = run.curve(_key(metric))
        return _usable(curve.images, curve.values)

    return _paired(base, own, metric, course)


def in_seconds(base: Group, own: Group, metric: str) -> OfRuns:
    """The factor of training time without evaluations, which contains the cost of the method itself. It has no interval
    if the two were not trained in the same hours: the drift of the machine would be in it."""
    if not only_training([*base.done, *own.done]):
        return OfRuns(None, "the runs have not recorded the time of training without evaluations")

    def course(run: Run) -> Course:
        timed = time_of(run, _key(metric), alone=True)
        return Course(np.zeros(0), np.zeros(0)) if timed is None else _usable(timed.clock.values, timed.curve.values)

    of_runs = _paired(base, own, metric, course)
    if of_runs.found is None or same_hours(base.done, own.done):
        return of_runs
    return of_runs._replace(found=replace(of_runs.found, low=None, high=None))


def _paired(base: Group, own: Group, metric: str, course) -> OfRuns:
    if not directed([base, own], metric):
        return OfRuns(None, f"neither direction of {metric} is better")
    mixed = any(len(protocols(group, metric)) > 1 for group in (base, own))
    if mixed or ruler(base, metric) != ruler(own, metric):
        return OfRuns(None, "it was measured differently")
    theirs = {run.seed: run for run in base.done}
    common = [(theirs[run.seed], run) for run in own.done if run.seed is not None and run.seed in theirs]
    if not common:
        return OfRuns(None, "they have no finished run with a common seed")
    courses = [(course(one), course(other)) for one, other in common]
    whole = [pair for pair in courses if min(len(pair[0].x), len(pair[1].x)) >= SNAPSHOTS]
    if not whole:
        return OfRuns(None, f"it needs a curve of {SNAPSHOTS} snapshots or more; train longer, or with {_more(metric)}")
    better = "higher" if rising([base, own], metric) else "lower"
    ours = speed_up([pair[0] for pair in whole], [pair[1] for pair in whole], better)
    return OfRuns(ours, "", len(common) - len(whole), tuple(whole))


def _usable(x: np.ndarray, values: np.ndarray) -> Course:
    """The snapshots with a finite value, after the start of training."""
    if values.ndim != 1:
        return Course(np.zeros(0), np.zeros(0))
    x, at = np.unique(x, return_index=True)
    used = (x > 0) & np.isfinite(values[at])
    return Course(x[used].astype(np.float64), values[at][used])


def _more(metric: str) -> str:
    """What makes more snapshots with a metric."""
    return "a smaller snapshot_every" if "/" in metric else "metrics_every=0"


def _key(metric: str) -> str:
    return metric if "/" in metric else f"metrics/{metric}"
