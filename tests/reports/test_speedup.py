"""The speed-up: exact on curves without noise, and its interval contains the true factor as often as it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from diffusion_lab.intervals import student_quantile
from diffusion_lab.reports.pair.speedup import Factor, MetricCurve, SpeedUp, local_cubic, over_seeds, smoothed, speed_up

TRUE, DRAWS, END = 2.5, 1000, 1e6
IMAGES = np.linspace(0.1, 1, 10) * END


def falling(images: np.ndarray, level: float = 1.0) -> np.ndarray:
    """A power law: straight in log-log, so that smoothing and interpolation are exact."""
    return level * 300 * images**-0.4


# -- closed forms


def test_a_cubic_is_its_own_smoothed_curve_and_noise_is_averaged():
    x, at = np.linspace(-1, 2, 20), np.linspace(-1, 2, 7)
    cubic = np.polynomial.Polynomial([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(local_cubic(x, cubic(x), at), cubic(at), atol=1e-9)
    noise = np.random.default_rng(0).standard_normal((400, 20))
    middle = np.array([local_cubic(x, one, np.array([0.5]))[0] for one in noise])
    assert middle.std() < 0.6  # of noise with a standard deviation of 1


@pytest.mark.parametrize("count", [2, 3])
def test_two_or_three_points_are_on_the_curve(count):
    x, y = np.array([0.0, 1.0, 3.0])[:count], np.array([2.0, 5.0, 1.0])[:count]
    np.testing.assert_allclose(local_cubic(x, y, x), y, atol=1e-9)


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_factor_of_curves_without_noise_is_exact_on_another_grid(better):
    def value(images, level):
        return falling(images, level) if better == "lower" else 1 / falling(images, level)

    levels, grid = [1.0, 1.3, 0.8], np.geomspace(0.05, 1, 7) * END
    base = [MetricCurve(IMAGES, value(IMAGES, level)) for level in levels]
    method = [MetricCurve(grid, value(TRUE * grid, level)) for level in levels]
    found = speed_up(base, method, better)
    assert found.factor == pytest.approx(TRUE) and (found.n, found.reached, found.total) == (3, 3, 3)
    assert found.low == pytest.approx(TRUE) and found.high == pytest.approx(TRUE)
    assert (found.bound, found.rises_again, found.reached_before) == ("", 0, 0)


def test_the_interval_is_students_of_the_logarithms():
    factors = [2.0, 3.0, 2.5]
    base = [MetricCurve(IMAGES, falling(IMAGES))] * 3
    found = speed_up(base, [MetricCurve(IMAGES, falling(f * IMAGES)) for f in factors], "lower")
    np.testing.assert_allclose([one.value for one in found.factors], factors)
    logs = np.log(factors)
    half = student_quantile(0.95, 2) * logs.std(ddof=1) / math.sqrt(3)
    expected = np.exp(logs.mean() + half * np.array([-1, 0, 1]))
    assert [found.low, found.factor, found.high] == pytest.approx(expected.tolist())


def test_equal_curves_have_factor_1_and_one_seed_has_no_interval():
    course = MetricCurve(IMAGES, falling(IMAGES))
    found = speed_up([course], [course], "lower")
    assert found.factor == pytest.approx(1) and (found.low, found.high, found.n) == (None, None, 1)


def test_a_metric_of_both_signs_is_taken_without_its_logarithm():
    def line(images: np.ndarray) -> np.ndarray:
        return 1 - np.log(images / END * 4)  # straight in log x, from positive to negative

    found = speed_up([MetricCurve(IMAGES, line(IMAGES))], [MetricCurve(IMAGES, line(TRUE * IMAGES))], "lower")
    assert found.factor == pytest.approx(TRUE)


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_smoothed_curve_has_the_units_of_the_metric(better):
    (curve,) = smoothed([MetricCurve(IMAGES, falling(IMAGES))], better)
    np.testing.assert_allclose(curve.smoothed.values, falling(curve.smoothed.x))
    assert curve.smoothed.x[0] == pytest.approx(IMAGES[0]) and curve.smoothed.x[-1] == pytest.approx(END)


# -- bounds


def test_a_seed_that_does_not_reach_it_is_a_bound_and_takes_the_interval_away():
    base = [MetricCurve(IMAGES, falling(IMAGES))] * 3
    method = [MetricCurve(IMAGES, falling(f * IMAGES)) for f in (2.0, 3.0, 0.5)]
    found = speed_up(base, method, "lower")
    assert (found.n, found.reached, found.total, found.bound) == (2, 2, 3, "at most")
    assert found.factors[2].value == pytest.approx(1.0) and found.factors[2].bound == "at most"
    assert found.factor == pytest.approx(6 ** (1 / 3)) and (found.low, found.high) == (None, None)


def test_a_method_that_is_better_from_its_first_evaluation_on_is_a_bound_from_below():
    found = speed_up([MetricCurve(IMAGES, falling(IMAGES))], [MetricCurve(IMAGES, falling(40 * IMAGES))], "lower")
    assert found.factors[0].bound == "at least" and found.factor == pytest.approx(10)
    assert (found.reached, found.n) == (1, 0)


@pytest.mark.parametrize(("n", "place"), [(4, None), (5, 5), (7, 7), (8, 7), (13, 10)])
def test_with_bounds_one_end_of_the_interval_remains_by_the_sign_test(n, place):
    values = [Factor(1.0, "at most"), *(Factor(1.0 + k) for k in range(1, n))]
    found = over_seeds(values)
    assert found.low is None and found.high == (None if place is None else pytest.approx(place))
    mirrored = over_seeds([Factor(1 / one.value, "at least" if one.bound else "") for one in values])
    assert mirrored.high is None and mirrored.low == (None if place is None else pytest.approx(1 / place))


def test_bounds_of_both_kinds_leave_neither_factor_nor_interval():
    found = over_seeds([Factor(1.0, "at most"), Factor(10.0, "at least"), *[Factor(2.0)] * 6])
    assert (found.factor, found.low, found.high) == (None, None, None) and found.total == 8


def test_the_end_by_the_sign_test_is_above_the_median_as_often_as_it_says():
    rng, above = np.random.default_rng(3), 0
    for _ in range(DRAWS):
        logs = 0.3 * rng.standard_normal(8)  # median factor 1; what is below 0.8 has not been reached
        values = [Factor(max(math.exp(v), 0.8), "at most" if math.exp(v) < 0.8 else "") for v in logs]
        found = over_seeds(values)
        above += found.high is not None and found.high >= 1
    assert above / DRAWS > 0.94


# -- what is counted


def test_a_later_evaluation_above_the_target_is_counted():
    values = falling(TRUE * IMAGES)
    values[7] = falling(IMAGES)[-1] * 1.2
    found = speed_up([MetricCurve(IMAGES, falling(IMAGES))], [MetricCurve(IMAGES, values)], "lower")
    assert found.rises_again == 1 and found.reached == 1


def test_a_baseline_that_has_passed_its_final_value_before_is_counted():
    overfit = falling(IMAGES) * np.where(IMAGES > 0.6 * END, (IMAGES / (0.6 * END)) ** 1.5, 1)
    found = speed_up([MetricCurve(IMAGES, overfit)] * 2, [MetricCurve(IMAGES, falling(IMAGES))] * 2, "lower")
    assert found.reached_before == 2


def test_a_method_that_equals_a_baseline_that_turns_has_factor_1():
    overfit = MetricCurve(IMAGES, falling(IMAGES) * np.where(IMAGES > 0.6 * END, (IMAGES / (0.6 * END)) ** 1.5, 1))
    found = speed_up([overfit] * 2, [overfit] * 2, "lower")
    assert (found.factor, found.low, found.high, found.reached_before) == (1, 1, 1, 0)


@pytest.mark.parametrize(("baseline", "method"), [(0, 0), (1, 2)])
def test_seeds_must_be_paired(baseline, method):
    course = MetricCurve(IMAGES, falling(IMAGES))
    with pytest.raises(ValueError, match="pair them by seed"):
        speed_up([course] * baseline, [course] * method, "lower")


def test_one_evaluation_is_no_curve():
    course = MetricCurve(IMAGES, falling(IMAGES))
    with pytest.raises(ValueError, match="snapshot_every"):
        speed_up([course], [MetricCurve(IMAGES[:1], falling(IMAGES[:1]))], "lower")


# -- coverage


def drawn(
    rng: np.random.Generator, seeds: int, evaluations: int, noise: float, shared: bool, floor: float = 2.0
) -> Iterator[tuple[MetricCurve, MetricCurve]]:
    """Pairs of curves, of which the method's is the baseline's at 2.5 times the images, on another grid.

    Both are level (floor + (8 - floor) images^-0.7), with a level of 3 % around 1 for each seed, or for each run, and
    independent noise at each evaluation.
    """
    images = np.arange(1, evaluations + 1) / evaluations * END
    for _ in range(seeds):
        level = np.exp(0.03 * rng.standard_normal(2))
        pair = []
        for i, x in enumerate((images, 0.9 * images)):
            true = floor + (8 - floor) * ((1, TRUE)[i] * x / END) ** -0.7
            pair.append(
                MetricCurve(x, level[0 if shared else i] * true * np.exp(noise * rng.standard_normal(evaluations)))
            )
        yield pair[0], pair[1]


def ours(pairs: list[tuple[MetricCurve, MetricCurve]]) -> SpeedUp:
    baseline, method = zip(*pairs, strict=True)
    return speed_up(baseline, method, "lower")


def best_so_far(pairs: list[tuple[MetricCurve, MetricCurve]]) -> SpeedUp:
    """The negative control: when each curve was first at the baseline's best value, without smoothing."""

    def first(course: MetricCurve, target: float) -> float:
        u, z = np.log(course.x), np.log(np.minimum.accumulate(course.values))
        below = np.flatnonzero(z <= target)
        if len(below) == 0 or below[0] == 0:
            return math.nan
        i = below[0]
        return float(np.interp(-target, -z[i - 1 : i + 1], u[i - 1 : i + 1]))

    logs = [first(b, target) - first(m, target) for b, m in pairs for target in (np.log(b.values).min(),)]
    return over_seeds([Factor(math.exp(v)) if math.isfinite(v) else Factor(1.0, "at most") for v in logs])


def coverage(estimate, seed: int, **given) -> tuple[float, float]:
    """Share of the two-sided intervals that contain the true factor, and share of draws with such an interval."""
    rng, contained, whole = np.random.default_rng(seed), 0, 0
    for _ in range(DRAWS):
        found = estimate(list(drawn(rng, **given)))
        if found.low is not None and found.high is not None:
            whole += 1
            contained += found.low <= TRUE <= found.high
    return contained / whole, whole / DRAWS


def test_the_interval_contains_the_true_factor():
    share, whole = coverage(ours, seed=1, seeds=3, evaluations=5, noise=0.03, shared=True)
    assert share >= 0.93 and whole == 1


def test_the_best_value_so_far_is_too_good():
    share, _ = coverage(best_so_far, seed=1, seeds=5, evaluations=10, noise=0.1, shared=True)
    assert share < 0.9


def test_the_normal_quantile_is_too_small():
    def normal(pairs: list[tuple[MetricCurve, MetricCurve]]) -> SpeedUp:
        logs = np.log([one.value for one in ours(pairs).factors])
        half = 1.96 * logs.std(ddof=1) / math.sqrt(len(logs))
        return SpeedUp((), None, "", math.exp(logs.mean() - half), math.exp(logs.mean() + half))

    share, _ = coverage(normal, seed=1, seeds=3, evaluations=5, noise=0.03, shared=True)
    assert share < 0.9


def settings() -> Iterator[Any]:
    """All sixteen; the slow suite has the four in which any two numbers occur with each other."""
    for case in itertools.product((3, 5), (5, 10), (0.03, 0.1), (True, False)):
        few = (case[0] == 3) ^ (case[1] == 5) ^ (case[2] == 0.03) and case[3] == (case[2] == 0.03)
        yield pytest.param(*case, marks=() if few else pytest.mark.exhaustive)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "evaluations", "noise", "shared"), list(settings()))
def test_the_interval_contains_the_true_factor_at_other_noise(seeds, evaluations, noise, shared):
    share, whole = coverage(ours, seed=2, seeds=seeds, evaluations=evaluations, noise=noise, shared=shared)
    assert share >= 0.93 and whole > 0.97


@pytest.mark.slow
def test_noise_as_large_as_what_the_metric_still_falls_by_leaves_few_intervals():
    share, whole = coverage(ours, seed=2, seeds=3, evaluations=10, noise=0.03, shared=False, floor=6.0)
    assert share >= 0.93 and whole > 0.9
    _, whole = coverage(ours, seed=2, seeds=3, evaluations=5, noise=0.1, shared=True, floor=6.0)
    assert whole < 0.6
