"""How many times fewer images, or seconds, a method needs to reach the baseline's final metric.

For each seed s, with a curve of the baseline that ends at x_baseline and a curve of the method,

    F_s = x_baseline / x_method(v),     v = final value of the baseline's curve,

where x_method(v) is the number of images at which the method's curve first reaches v, so F > 1 if the method is faster.
A baseline whose curve turns is at v before its end, which makes F too large: such seeds are counted. (With the place
where it is first there instead of its end, noise would make F too small: 91 % below instead of 94 to 97 %.) Equal
curves have F = 1.
The factor is the geometric mean of the F_s, with Student's interval of the mean of log F_s.

Evaluations are noisy: the best value so far is too good, because it is a minimum over the noise. Both curves are
therefore smoothed by local cubic regression in the logarithms of metric and images (losses and Fréchet distances fall
like a + b images^-c), and v and x_method(v) are those of the smoothed curves. A metric with values that are not
positive is smoothed without its logarithm.

The smooth curve assumes no formula for the whole: at q its value is p(0) of the cubic polynomial p that minimises

    sum_i w_i (y_i - p(x_i - q))^2,     w_i = (1 - (|x_i - q| / h)^3)^3 where |x_i - q| < h, else 0

where h is the distance to the farthest of the `NEAREST` nearest points, or of half of the points if these are more
(Cleveland 1979, "Robust locally weighted regression", without the robust iterations). A curve of up to `NEAREST` points
is fitted as a whole, with h wider than it. With 4 points the polynomial is a parabola; with 2 or 3 it passes through
all of them.

In 1,000 simulated comparisons with a true factor of 2.5 the 95 % interval contains it in 94 to 97 % of the cases:
curves a + b images^-0.7 with 5 or 10 evaluations, 3 or 5 seeds, independent noise of 1, 3 or 10 % at each evaluation,
and 3 % between the seeds, either common to a pair or not (tests/reports/test_speedup.py). It falls to 92 % if the noise
is as large as what the metric still falls by in the second half of training; then most comparisons have a seed that
does not reach v. With the best value so far in place of v, and the images at which it was first seen, 10 evaluations
and 5 seeds with 10 % of noise give 82 %.

A seed whose method never reaches v has F_s <= x_baseline / x_method(end); a method that is better than v from its first
evaluation on has F_s >= x_baseline / x_method(first). Then log F_s has no value for Student's interval. The interval
has only the end that the bounds allow: the order statistic on the right side of the median of F in 95 % of the cases
(sign test), which needs 5 seeds. With fewer, or with bounds of both kinds, there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import ratio_interval

LEVEL = 0.95
NEAREST = 8  # points that the smoothed curve is fitted to at each place
WHOLE = 1.5  # h over the distance to the farthest point, where all points are used
PLACES = 33  # of the smoothed curve, equally far in log x, between which it is interpolated
CLOSE = 1e-9  # of the range of a smoothed curve: rounding, so that a curve reaches its own final value


class Factor(NamedTuple):
    """F of one seed.

    Attributes:
        value: F, or its bound.
        bound: "" for a value; "at most" if the method did not reach v, "at least" if it had reached v by its first
            evaluation.
        rises_again: whether an evaluation of the method is worse than v after it has reached v.
        reached_before: whether the baseline's smoothed curve is at v before its end, which makes F too large.
        ends_worse: whether the method has reached v and its smoothed curve ends worse than it.
    """

    value: float
    bound: str = ""
    rises_again: bool = False
    reached_before: bool = False
    ends_worse: bool = False


@dataclass(frozen=True)
class SpeedUp:
    """The factor over seeds.

    Attributes:
        factors: one per seed.
        factor: their geometric mean, for which bounds count as values; None if there are bounds of both kinds.
        bound: "", or "at most" or "at least" if some of the factors are bounds.
        low: lower end of the 95 % interval, None if there is none.
        high: its upper end, None if there is none.
    """

    factors: tuple[Factor, ...]
    factor: float | None
    bound: str
    low: float | None
    high: float | None

    @property
    def total(self) -> int:
        """Number of seeds."""
        return len(self.factors)

    @property
    def reached(self) -> int:
        """Seeds whose method reached the baseline's final value."""
        return sum(one.bound != "at most" for one in self.factors)

    @property
    def n(self) -> int:
        """Seeds with a value, not a bound."""
        return sum(not one.bound for one in self.factors)

    @property
    def rises_again(self) -> int:
        """Seeds with an evaluation that is worse than the baseline's final value after the method has reached it."""
        return sum(one.rises_again for one in self.factors)

    @property
    def ends_worse(self) -> int:
        """Seeds whose method has reached the baseline's final value and is worse at its end."""
        return sum(one.ends_worse for one in self.factors)

    @property
    def reached_before(self) -> int:
        """Seeds whose baseline is at its final value before its end: its curve has a minimum, or is flat."""
        return sum(one.reached_before for one in self.factors)


def speed_up(baseline: Sequence[MetricCurve], method: Sequence[MetricCurve], better: str) -> SpeedUp:
    """The factor of the method over the baseline.

    Args:
        baseline: one curve per seed.
        method: the method's curve of the same seeds, possibly at other numbers of images.
        better: "lower" or "higher", the better direction of the metric.

    Raises:
        ValueError: no seeds, another number of them, or a curve with fewer than 2 evaluations.
    """
    if not baseline or len(baseline) != len(method):
        raise ValueError(f"method has {len(method)} curves and the baseline {len(baseline)}; pair them by seed")
    for course in (*baseline, *method):
        if len(course.x) < 2:
            raise ValueError(f"a curve has {len(course.x)} evaluations and needs 2; use a smaller snapshot_every")
    curves = smoothed([*baseline, *method], better)
    half = len(baseline)
    return over_seeds([_factor(base, own) for base, own in zip(curves[:half], curves[half:], strict=True)])


def over_seeds(factors: Sequence[Factor]) -> SpeedUp:
    """Geometric mean and interval of the factors, at least one."""
    values = [one.value for one in factors]
    bounds = {one.bound for one in factors} - {""}
    mean = ratio_interval(values, LEVEL)
    if len(bounds) == 2:
        return SpeedUp(tuple(factors), None, "", None, None)
    if not bounds:
        return SpeedUp(tuple(factors), mean.mean, "", mean.low, mean.high)
    (bound,) = bounds
    rank = _beyond_median(len(values))
    end = sorted(values, reverse=bound == "at least")[-rank] if rank else None
    low, high = (None, end) if bound == "at most" else (end, None)
    return SpeedUp(tuple(factors), mean.mean, bound, low, high)


def _factor(baseline: SmoothCurve, method: SmoothCurve) -> Factor:
    """F of one seed."""
    if np.array_equal(baseline.at, method.at) and np.array_equal(baseline.measured, method.measured):
        return Factor(1.0)
    target, end = float(baseline.z[-1]), float(baseline.u[-1])
    before = baseline.reaches(target) < baseline.at[-2]
    own = method.reaches(target)
    if own == math.inf:
        return Factor(math.exp(end - method.u[-1]), "at most", False, before)
    first = max(own, float(method.u[0]))
    worse = bool(np.any(method.measured[method.at > first] > target))
    lost = bool(method.z[-1] > target + CLOSE * float(np.ptp(method.z)))
    return Factor(math.exp(end - first), "at least" if own == -math.inf else "", worse, before, lost)


def _beyond_median(n: int) -> int | None:
    """The largest k such that the k-th largest of n values is below their median in at most 5 % of the cases, that is,
    sum_(j<k) (n over j) / 2^n <= 5 %; None if not even the largest value is that certain."""
    probability = 0.0
    for k in range(n):
        probability += math.comb(n, k) / 2**n
        if probability > 1 - LEVEL:
            return k or None
    return n


class MetricCurve(NamedTuple):
    """A metric over training: x (n,) images or seconds, increasing and positive, and values (n,), finite."""

    x: np.ndarray
    values: np.ndarray


class SmoothCurve(NamedTuple):
    """A curve z(u), u = log x, that falls as the metric becomes better: z is +-log of the metric, or +-the metric.

    Attributes:
        at: (n,) log x of the evaluations.
        evaluations: (n,) their z.
        u: (PLACES,) from the first to the last evaluation.
        z: (PLACES,) the smoothed curve.
        sign: 1.0 if a lower value is better, else -1.0.
        logarithm: whether z has the logarithm of the metric.
    """

    at: np.ndarray
    measured: np.ndarray
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
    def smoothed(self) -> MetricCurve:
        """The smoothed curve in the units of x and of the metric."""
        z = self.sign * self.z
        return MetricCurve(np.exp(self.u), np.exp(z) if self.logarithm else z)


def smoothed(courses: Sequence[MetricCurve], better: str) -> list[SmoothCurve]:
    """The curves, all in logarithms of the metric if all values are positive.

    Args:
        courses: each with at least 2 evaluations.
        better: "lower" or "higher", the better direction of the metric.
    """
    logarithm = all(bool(np.all(course.values > 0)) for course in courses)
    sign = 1.0 if better == "lower" else -1.0
    curves = []
    for course in courses:
        at, measured = np.log(course.x), sign * (np.log(course.values) if logarithm else course.values)
        u = np.linspace(at[0], at[-1], PLACES)
        curves.append(SmoothCurve(at, measured, u, local_cubic(at, measured, u), sign, logarithm))
    return curves


def local_cubic(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The smoothed curve at some places.

    Args:
        x: (n,) increasing, n >= 2.
        y: (n,) values at x.
        at: (m,) places between the first and the last x.

    Returns:
        (m,) smoothed values.
    """
    count = len(x)
    used = max(NEAREST, (count + 1) // 2)
    offsets = x[None, :] - at[:, None]
    distances = np.abs(offsets)
    if used >= count:
        reach = WHOLE * distances.max(1, keepdims=True)
    else:  # the farthest of the nearest points has a small weight, not 0
        reach = (1 + 1e-3) * np.sort(distances, axis=1)[:, used - 1 : used]
    weights = np.clip(1 - (distances / reach) ** 3, 0, None) ** 3
    degree = min(count - 1, 3 if count > 4 else 2)
    powers = (offsets / reach)[..., None] ** np.arange(degree + 1)
    weighted = weights[..., None] * powers
    normal = np.einsum("mni,mnj->mij", weighted, powers)
    return np.linalg.solve(normal, np.einsum("mni,n->mi", weighted, y)[..., None])[:, 0, 0]
