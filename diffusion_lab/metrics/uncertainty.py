"""Intervals over seeds.

n runs that differ in their seed alone give v_1..v_n. With mean m and standard deviation s (divisor n - 1), the mean
of the method lies in

    m +- t(level, n - 1) s / sqrt(n)

with probability `level`, if the v are normal; t is Student's quantile: P(|T| < t) = level. One run gives no interval.

Two methods that used the same seeds are compared by the interval of v_i(a) - v_i(b): common images, noise and latents
cancel, so it is much narrower than the two intervals suggest. A difference is claimed only when that interval excludes
zero. The spread over training seeds is 3.2 times that of resampling (arXiv 2606.20536), so resampling one model says
little; report n with every interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """Mean, standard deviation (divisor n - 1) and interval of n values; std, low and high are None for n = 1."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """(high - low) / 2, or None for n = 1."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside; False for n = 1, where nothing can be claimed."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's interval of the mean.

    Args:
        values: one number per seed, at least one, all finite.
        level: coverage, in (0, 1).

    Raises:
        ValueError: no values, or one that is not finite.
    """
    values = [float(v) for v in values]
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"values={values} must be finite and at least one; leave failed runs out and name them")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, None, None, 1)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = student_quantile(level, n - 1) * std / math.sqrt(n)
    return Interval(mean, std, mean - half, mean + half, n)


def paired_difference(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Interval of the mean of a_i - b_i, where a_i and b_i used the same seed.

    Raises:
        ValueError: the two have different lengths.
    """
    if len(a) != len(b):
        raise ValueError(f"a has {len(a)} values and b {len(b)}; pair them by seed and leave single ones out")
    return mean_interval([x - y for x, y in zip(a, b, strict=True)], level)


def student_quantile(level: float, dof: int) -> float:
    """t with P(|T| < t) = level for Student's T with `dof` degrees of freedom, by bisection of the closed form.

    Args:
        level: in (0, 1).
        dof: integer >= 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie in (0, 1); use 0.95")
    low, high = 0.0, math.pi / 2  # t = sqrt(dof) tan(angle)
    for _ in range(80):
        middle = (low + high) / 2
        if _central_probability(middle, dof) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(dof) * math.tan(low)


def _central_probability(angle: float, dof: int) -> float:
    """P(|T| < sqrt(dof) tan(angle)): Abramowitz and Stegun (1964), 26.7.3 (odd dof) and 26.7.4 (even)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = dof % 2
    term = cosine if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
