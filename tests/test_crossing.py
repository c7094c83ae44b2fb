"""Slopes and crossings against closed forms, and the set's coverage by simulation."""

import math

import numpy as np
import pytest

from diffusion_lab.crossing import crossings, slope
from diffusion_lab.intervals import mean_interval, student_quantile

U = [0.0, 1.0, 2.0, 3.0]


def test_slope_of_lines_is_theirs_and_the_interval_that_of_the_seeds() -> None:
    slopes = [0.1, 0.2, 0.6]
    found = slope(U, [[k + s * u for u in U] for k, s in enumerate(slopes)])
    expected = mean_interval(slopes)
    assert found.n == 3
    for name in ("mean", "std", "low", "high"):
        assert math.isclose(getattr(found, name), getattr(expected, name)), name


def test_a_bent_line_has_the_slope_of_least_squares() -> None:
    y = [0.0, 5.0, -1.0, 3.0]
    assert math.isclose(slope(U, [y]).mean, float(np.polyfit(U, y, 1)[0]), abs_tol=1e-12)


def test_of_equal_slopes_the_set_is_the_interval_over_the_slope() -> None:
    """y_s = c_s + u: the mean is 0 at -mean(c), and Student's interval of it, which is as wide everywhere, holds 0
    within t sd(c) / sqrt(n) of that."""
    c = [-1.6, -1.5, -1.2, -1.7]
    found = crossings(U, [[own + u for u in U] for own in c])
    half = student_quantile(0.95, 3) * float(np.std(c, ddof=1)) / 2
    assert np.allclose(found.zeros, [1.5])
    assert found.spans is not None and np.allclose(found.spans, [(1.5 - half, 1.5 + half)])


def test_each_end_of_the_set_is_where_the_interval_ends_at_zero() -> None:
    y = np.random.default_rng(1).normal(0, 0.4, (5, 4)) + [-1.0, 0.1, 0.2, -0.9]
    found = crossings(U, y.tolist())
    assert found.spans
    inside, ends = 0, [end for span in found.spans for end in span if 0 < end < 3]
    for end in ends:
        interval = mean_interval([float(np.interp(end, U, own)) for own in y])
        assert math.isclose(0, min(abs(interval.low or 1), abs(interval.high or 1)), abs_tol=1e-9)
    for at in np.linspace(0, 3, 601):
        interval = mean_interval([float(np.interp(at, U, own)) for own in y])
        holds = not interval.excludes_zero
        assert holds == any(low <= at <= high for low, high in found.spans)
        inside += holds
    assert ends and 0 < inside < 601


def test_a_mean_may_cross_twice_and_a_set_reach_the_last_place() -> None:
    found = crossings(U, [[-1.0, 1.0, -1.0, -0.01], [-1.1, 1.0, -1.0, 0.02], [-0.9, 1.1, -1.1, -0.02]])
    assert found.spans is not None and len(found.zeros) == 2 and len(found.spans) == 3
    assert found.spans[-1][1] == 3.0 and found.spans[0][0] > 0
    assert crossings(U, [[1.0] * 4, [1.1] * 4]).zeros == []


def test_the_set_moves_with_its_axis_also_below_zero() -> None:
    """Touching parts of it were two for negative places, such as logarithms of a learning rate."""
    y = [[0.1, 0.1, 0.1], [-0.1, -0.12, -0.1], [0.02, 0.0, 0.01]]
    assert crossings([1, 2, 3], y).spans == [(1, 3)]
    assert crossings([-3, -2, -1], y).spans == [(-3, -1)]
    assert crossings([math.log(x) for x in (1e-4, 3e-4, 1e-3)], y).spans == [(math.log(1e-4), math.log(1e-3))]


def test_one_seed_has_no_set_and_a_zero_at_a_place_is_one() -> None:
    assert crossings([0.0, 1.0], [[0.0, 2.0]]) == ([0.0], None)
    assert crossings(U, [[-1.0, 0.0, 1.0, 2.0], [-1.0, 0.0, 1.0, 2.0]]).spans == [(1.0, 1.0)]


@pytest.mark.parametrize(("u", "y"), [([1.0], [[1.0]]), (U, []), (U, [[1.0, 2.0]])])
def test_too_few_places_and_missing_values_are_refused(u: list[float], y: list[list[float]]) -> None:
    for found in (slope, crossings):
        with pytest.raises(ValueError, match="must be one for each of"):
            found(u, y)


def test_the_set_holds_a_true_crossing_in_95_of_100_cases_and_half_of_it_does_not() -> None:
    """The seeds' places are correlated, as budgets that share a seed are; of the means one is 0 between two places."""
    chance, true, rounds = np.random.default_rng(0), 1.37, 2000
    mean, held, half = np.interp(U, [0.0, true, 3.0], [-0.7, 0.0, 0.5]), 0, 0
    mean[1:3] = [0.37 * -0.4, 0.63 * 0.4]  # linear between the two places about the crossing
    for _ in range(rounds):
        y = mean + chance.normal(0, 0.3, (5, 1)) + chance.normal(0, 0.3, (5, 4))
        spans = crossings(U, y.tolist()).spans or []
        held += any(low <= true <= high for low, high in spans)
        half += any(low + (high - low) / 4 <= true <= high - (high - low) / 4 for low, high in spans)
    assert abs(held / rounds - 0.95) < 4 * math.sqrt(0.95 * 0.05 / rounds)
    assert half / rounds < 0.9
