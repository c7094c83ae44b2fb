"""How a paired difference changes along an axis, such as a training budget, and where it changes its sign.

n seeds have a difference y_s(u_1) .. y_s(u_m) at m places; between two places y_s is linear in u. For ratios y is a
logarithm; for an axis on which factors count, such as a number of steps, so is u.

    slope      of y_s on u by least squares, for each seed; Student's interval of their mean
    crossings  all u with mean_s y_s(u) = 0
    95 % set   all u at which Student's interval of mean_s y_s(u) holds 0:
                   n mean_s y_s(u)^2 <= t(0.95, n - 1)^2 var_s y_s(u)
               the u at which "the mean is 0 here" is not rejected at 5 %; it holds a true crossing with 95 %

Between two places the mean is linear and the variance quadratic in u, so that the ends of the set are roots of a
quadratic. The set may be empty, have several parts, and reach the first or the last place, beyond which it says
nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import Interval, mean_interval, student_quantile

Span = tuple[float, float]


class Crossings(NamedTuple):
    """Where the mean of the seeds is 0, and the 95 % set of such places.

    Attributes:
        zeros: in ascending order.
        spans: the parts of the set, in ascending order; None for one seed, which has no set.
    """

    zeros: list[float]
    spans: list[Span] | None


def slope(u: Sequence[float], y: Sequence[Sequence[float]]) -> Interval:
    """Mean over seeds of the slope of y on u, with Student's 95 % interval.

    Args:
        u: m >= 2 different places.
        y: of each seed, its m differences.

    Raises:
        ValueError: there are fewer places, or a seed has another number of differences.
    """
    places = _checked(u, y)
    centred = places - places.mean()
    return mean_interval((np.asarray(y, dtype=float) @ centred / (centred @ centred)).tolist())


def crossings(u: Sequence[float], y: Sequence[Sequence[float]]) -> Crossings:
    """Zeros of the mean, and the 95 % set; arguments and errors as of `slope`, u ascending."""
    places, seeds = _checked(u, y), np.asarray(y, dtype=float)
    mean, n = seeds.mean(0), len(seeds)
    zeros = [float(at) for at, value in zip(places, mean, strict=True) if value == 0]
    for k, (left, right) in enumerate(itertools.pairwise(mean.tolist())):
        if left * right < 0:
            zeros.append(float(places[k] + (places[k + 1] - places[k]) * left / (left - right)))
    if n == 1:
        return Crossings(sorted(zeros), None)
    spans = [span for k in range(len(places) - 1) for span in _spans(places[k : k + 2], seeds[:, k : k + 2])]
    return Crossings(sorted(zeros), _joined(spans))


def _checked(u: Sequence[float], y: Sequence[Sequence[float]]) -> np.ndarray:
    if len(u) < 2 or not y or any(len(own) != len(u) for own in y):
        lengths = [len(own) for own in y]
        raise ValueError(f"y={lengths} values must be one for each of {len(u)} places, of which there are at least 2")
    return np.asarray(u, dtype=float)


def _spans(ends: np.ndarray, seeds: np.ndarray) -> list[Span]:
    """The part of the set between two places. With w from 0 to 1, y_s = a_s + w b_s and

    f(w) = n mean^2 - t^2 var = A w^2 + 2 B w + C <= 0
    """
    n = len(seeds)
    a, b = seeds[:, 0], seeds[:, 1] - seeds[:, 0]
    t2 = student_quantile(0.95, n - 1) ** 2

    def form(x: np.ndarray, z: np.ndarray) -> float:
        return float(n * x.mean() * z.mean() - t2 * ((x - x.mean()) @ (z - z.mean())) / (n - 1))

    square, half, constant = form(b, b), form(a, b), form(a, a)
    roots = [w for w in _roots(square, half, constant) if 0 <= w <= 1]
    within = [(w, w) for w in roots]
    for left, right in itertools.pairwise(sorted({0.0, *roots, 1.0})):
        middle = (left + right) / 2
        if square * middle**2 + 2 * half * middle + constant <= 0:
            within.append((left, right))
    width = float(ends[1] - ends[0])
    return [(float(ends[0]) + width * left, float(ends[0]) + width * right) for left, right in sorted(within)]


def _roots(square: float, half: float, constant: float) -> list[float]:
    """Of square w^2 + 2 half w + constant, ascending, without cancellation."""
    if square == 0:
        return [] if half == 0 else [-constant / (2 * half)]
    inside = half**2 - square * constant
    if inside < 0:
        return []
    q = -(half + math.copysign(math.sqrt(inside), half))
    return sorted({q / square, constant / q} if q else {0.0})


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Parts that touch, as one."""
    found: list[Span] = []
    for low, high in spans:
        if found and low <= found[-1][1] + 1e-12 * (1 + abs(found[-1][1])):
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
