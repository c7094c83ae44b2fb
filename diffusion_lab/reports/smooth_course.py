"""A metric over training as a smooth curve in logarithms, read at the first place where it is good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.reports.local_cubic import local_cubic

PLACES = 33  # of the smoothed curve, equally far in log x, between which it is interpolated
CLOSE = 1e-9  # of the range of a smoothed curve: rounding, so that a curve reaches its own final value


class Course(NamedTuple):
    """A metric over training: x (n,) images or seconds, increasing and positive, and values (n,), finite."""

    x: np.ndarray
    values: np.ndarray


class SmoothCourse(NamedTuple):
    """A curve z(u), u = log x, that falls as the metric becomes better: z is +-log of the metric, or +-the metric.

    Attributes:
        at: (n,) log x of the snapshots.
        snapshots: (n,) their z.
        u: (PLACES,) from the first to the last snapshot.
        z: (PLACES,) the smoothed curve.
        sign: 1.0 if a lower value is better, else -1.0.
        logarithm: whether z has the logarithm of the metric.
    """

    at: np.ndarray
    snapshots: np.ndarray
    u: np.ndarray
    z: np.ndarray
    sign: float
    logarithm: bool

    def reaches(self, target: float) -> float:
        """u at which the smoothed curve first is at z = `target` or below; -inf if from its start, inf if never."""
        below = np.flatnonzero(self.z <= target + CLOSE * float(np.ptp(self.z)))
        if len(below) == 0 or below[0] == 0:
            return -math.inf if len(below) else math.inf
        i = int(below[0])
        return float(np.interp(-target, -self.z[i - 1 : i + 1], self.u[i - 1 : i + 1]))

    @property
    def smoothed(self) -> Course:
        """The smoothed curve in the units of x and of the metric."""
        z = self.sign * self.z
        return Course(np.exp(self.u), np.exp(z) if self.logarithm else z)


def smoothed(courses: Sequence[Course], better: str) -> list[SmoothCourse]:
    """The curves, all in logarithms of the metric if all values are positive.

    Args:
        courses: each with at least 2 snapshots.
        better: "lower" or "higher", the better direction of the metric.
    """
    logarithm = all(bool(np.all(course.values > 0)) for course in courses)
    sign = 1.0 if better == "lower" else -1.0
    curves = []
    for course in courses:
        at, snapshots = np.log(course.x), sign * (np.log(course.values) if logarithm else course.values)
        u = np.linspace(at[0], at[-1], PLACES)
        curves.append(SmoothCourse(at, snapshots, u, local_cubic(at, snapshots, u), sign, logarithm))
    return curves
