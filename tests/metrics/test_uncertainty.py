"""Intervals against scipy and against simulated truth."""

import numpy as np
import pytest
import scipy.stats

from diffusion_lab.metrics import mean_interval, paired_difference, student_quantile


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 5, 9, 30, 99, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_student_quantile(level, dof):
    assert student_quantile(level, dof) == pytest.approx(scipy.stats.t.ppf(0.5 + level / 2, dof), rel=1e-9)


def test_interval_against_scipy():
    values = [3.1, 2.7, 3.6, 2.9, 3.3]
    found = mean_interval(values, 0.9)
    low, high = scipy.stats.t.interval(0.9, 4, loc=np.mean(values), scale=scipy.stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert found.mean == pytest.approx(np.mean(values)) and found.std == pytest.approx(np.std(values, ddof=1))
    assert found.half_width == pytest.approx((high - low) / 2) and found.n == 5


def test_one_run_has_no_interval_and_claims_nothing():
    found = mean_interval([4.0])
    assert (found.mean, found.std, found.low, found.high, found.half_width, found.n) == (4, None, None, None, None, 1)
    assert not found.excludes_zero


def test_paired_difference_against_scipys_test():
    a, b = [3.1, 2.7, 3.6, 2.9], [2.9, 2.6, 3.2, 2.8]
    found = paired_difference(a, b)
    test = scipy.stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((test.low, test.high), rel=1e-9)
    assert found.excludes_zero == (test.low > 0 or test.high < 0)


def test_pairing_sees_what_the_single_intervals_hide():
    """Seeds differ by 1, methods by 0.1: each mean is uncertain, their difference is not."""
    seeds = np.random.RandomState(0).normal(0, 1, 5)
    wiggle = np.random.RandomState(1).normal(0, 0.01, 5)
    a, b = 10 + seeds, 10.1 + seeds + wiggle
    assert mean_interval(a).high > mean_interval(b).low
    assert paired_difference(a, b).excludes_zero and paired_difference(a, b).mean < 0


@pytest.mark.parametrize("n", [3, 5])
def test_coverage(n):
    """95 % intervals of simulated runs contain the truth in 93 to 97 % of 4000 repeats; so do paired ones."""
    draws = np.random.RandomState(n).normal(7, 2, (4000, n))
    covered = [(found := mean_interval(row)).low <= 7 <= found.high for row in draws]
    assert 0.93 <= np.mean(covered) <= 0.97
    others = draws + np.random.RandomState(n + 1).normal(0, 0.3, draws.shape)
    false_claims = [paired_difference(a, b).excludes_zero for a, b in zip(draws, others, strict=True)]
    assert 0.03 <= np.mean(false_claims) <= 0.07


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="^values="):
        mean_interval([])
    with pytest.raises(ValueError, match="leave failed runs out"):
        mean_interval([1.0, float("nan")])
    with pytest.raises(ValueError, match="^level=1.0 must lie in"):
        mean_interval([1.0, 2.0], level=1.0)
    with pytest.raises(ValueError, match="a has 2 values and b 1"):
        paired_difference([1.0, 2.0], [1.0])
