"""Intervals over seeds.

n runs that differ in their seed alone give v_1..v_n. With mean m and standard deviation s (divisor n - 1), the mean
of the method lies in

    m +- t(level, n - 1) s / sqrt(n)

with probability `level`, if the v are normal; t is Student's quantile: P(|T| < t) = level. One run gives no interval.

Two methods that used the same seeds are compared by the interval of v_i(a) - v_i(b): images, noise and latents are
common. The gain from pairing varies: with V = (var(a) + var(b)) / var(a - b), the committed tables of
experiments/methods have a median V of 1.9 on digits (n = 5, 21 rows) and of 1.35 on Fashion-MNIST (n = 3, 17 rows),
and V < 1 in 8 of the 38. An unpaired interval also has 2n - 2 degrees of freedom instead of n - 1, so with n = 3 its
median width is 0.75 of the paired one. The paired interval should nevertheless be used: it is valid whether the two
correlate or not, and the choice must not depend on the result. Tables of several methods use the spread of all rows
instead (`diffusion_lab.verdicts`).

The latents of the evaluated samples belong to the seed, so their effect is part of the spread. If all seeds share one
set of latents (`metrics.seed=0`), v_i = m + T_i + E + (T E)_i, where the effect E of the latents is equal for all i: it
does not enter s, and the interval covers the mean over trainings and latents less often than it says, the less the
larger n (var(E) does not fall with n, s^2 / n does).

Several comparisons: in a table of m rows without any difference, the probability that some interval excludes 0 is far
above 5 %. `holm` corrects the p-values of the m paired t-tests so that the probability of any false claim is at most
5 % (Holm 1979, "A simple sequentially rejective multiple test procedure"), however they depend on one another: all
share a baseline. The number of seeds must be fixed beforehand: adding seeds from n = 3 to 12 until the plain interval
excludes 0 finds a difference where there is none in 18 % of the cases. Both rates are simulated in
tests/test_intervals.py.

The spread over training seeds is 3.2 times that of resampling (arXiv 2606.20536), so resampling one model says little;
report n with every interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from diffusion_lab.arguments import check_number

Estimand = Literal["end", "training"]  # the number of a run: its last value, or the mean over its snapshots
ESTIMANDS: Mapping[Estimand, str] = {"end": "at the end", "training": "over training"}
STOPPINGS = ("fixed", "race")  # what decides how many seeds a method gets: all as many, or what a race has found
RACE_ALPHAS = (0.02, 0.2)  # errors of a race: below, 20,000 simulated ones tell no bound after two of ten seeds
CLAIM_SEEDS = 3  # fewer pairs support no claim


class Interval(NamedTuple):
    """Mean, standard deviation (divisor n - 1) and interval of n values; std, low and high are None for n = 1.

    Of ratios (`ratio_interval`) mean is the geometric one, and std None.
    """

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
    def p_value(self) -> float | None:
        """Two-sided p of Student's t-test for mean 0; None for n = 1 and for ratios, 1 if all values are 0."""
        if self.std is None:
            return None
        if self.std == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 1 - _central_probability(
            math.atan(abs(self.mean) / self.std * math.sqrt(self.n / (self.n - 1))), self.n - 1
        )

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


def ratio_interval(ratios: Sequence[float], level: float = 0.95) -> Interval:
    """Geometric mean of r_i > 0 with Student's interval of the mean of log r_i, so that its ends are positive too.

    `std` is None: a p-value for a mean of 0 has no meaning for ratios.
    """
    logs = mean_interval([math.log(ratio) for ratio in ratios], level)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(math.exp(logs.mean), None, low, high, logs.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values, in the given order: with probability 1 - a or more, all claims at p <= a are true.

    With p_(1) <= .. <= p_(m), the k-th becomes max over j <= k of min(1, (m - j + 1) p_(j)).
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


@lru_cache(maxsize=1024)
def student_quantile(level: float, dof: int) -> float:
    """t with P(|T| < t) = level for Student's T with `dof` degrees of freedom, by bisection of the closed form.

    Args:
        level: in (0, 1).
        dof: integer >= 1.
    """
    check_number("level", level, "()", 0, 1, "use 0.95")
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
