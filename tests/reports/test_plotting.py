"""Labels that do not overlap, and means over seeds."""

import numpy as np
import pytest
from scipy.optimize import minimize

from diffusion_lab.reports.figures import over_seeds
from diffusion_lab.reports.plotting import look, spread
from diffusion_lab.reports.records import Curve
from diffusion_lab.reports.timestep_figures import edges, relative


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_spread_as_little_as_possible(seed):
    wanted, gap, lowest = np.random.default_rng(seed).uniform(0, 1, 6), 0.15, 0.1
    places = spread(wanted, gap, lowest)
    order = np.argsort(wanted)
    assert np.diff(places[order]).min() >= gap - 1e-12 and places.min() >= lowest

    apart = {"type": "ineq", "fun": lambda y: np.append(np.diff(y[order]) - gap, y.min() - lowest)}
    best = minimize(lambda y: ((y - wanted) ** 2).sum(), places + 0.01, constraints=[apart], tol=1e-12)
    assert ((places - wanted) ** 2).sum() <= best.fun + 1e-6


def test_labels_with_room_stay_where_they_are():
    wanted = np.array([0.9, 0.1, 0.5])
    np.testing.assert_allclose(spread(wanted, 0.1), wanted, atol=1e-12)
    assert len(spread(np.array([]), 0.1)) == 0


def test_the_mean_is_taken_where_all_seeds_are():
    images = np.array([10, 20, 30])
    a = Curve(images, images, np.array([1.0, 2.0, 3.0]))
    b = Curve(images[:2], images[:2], np.array([3.0, 6.0]))
    mean = over_seeds([a, b])
    assert mean.images.tolist() == [10, 20] and mean.mean.tolist() == [2.0, 4.0]
    assert (mean.low.tolist(), mean.high.tolist()) == ([1.0, 2.0], [3.0, 6.0])
    assert over_seeds([]) is None


class _Fake:
    config = {"schedule": {"num_timesteps": 10}}


def test_ranges_of_timesteps_are_those_of_the_log():
    t = np.arange(10)
    for bins in (1, 3, 4, 10):
        counted = np.bincount(t * bins // 10, minlength=bins)  # as TimestepLog bins
        np.testing.assert_array_equal(np.diff(edges(_Fake, bins)), counted)
        np.testing.assert_allclose(relative(_Fake, counted / 10), 1)  # the uniform law


def test_no_two_groups_look_alike():
    looks = [look(i) for i in range(28)]
    assert len(set(looks)) == 28
