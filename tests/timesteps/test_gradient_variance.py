"""Timesteps in proportion to the variance of their gradients: where it is measured, and the law from it."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, GradientVariance, Position, StepRecord
from diffusion_lab.timesteps.gradient_variance import squares

# Xie & Agam, Table 1: ten ranges of timesteps with equal losses, the most at little noise.
SIZES = torch.tensor([5, 8, 10, 14, 19, 26, 38, 57, 100, 723])
CURVE = torch.repeat_interleave(0.1 / SIZES.double(), SIZES)


class Moments:
    """A probe that knows the moments at every timestep."""

    def __init__(self, curve: torch.Tensor) -> None:
        self.curve = curve

    def grad_moments(self, x0, t, seed, **cond):
        return self.curve[t], self.curve[t].square()


def measured(*curves: torch.Tensor, **arguments) -> GradientVariance:
    """The sampler after an update for each curve."""
    sampler = GradientVariance(len(curves[0]), every=1, uniform=0.0, **arguments)
    record = StepRecord(torch.zeros(8, 1), {}, torch.zeros(8).long(), torch.zeros(8), torch.zeros(8))
    for step, curve in enumerate(curves):
        sampler.observe(record, Context(Position(step), Streams(0), probe=Moments(curve)))
    return sampler


def test_the_law_is_the_curve_where_every_timestep_is_measured():
    torch.testing.assert_close(measured(CURVE, points=1000).probabilities(0), CURVE)


def test_twenty_points_find_a_curve_that_is_steep_at_little_noise():
    """With equal distances the first four slots would have 0.54 of the mass, not 0.4."""
    shares = measured(CURVE, points=20).probabilities(0).split(SIZES.tolist())
    assert sum(float(share.sum()) for share in shares[:4]) == pytest.approx(0.4, abs=0.05)
    assert all(0.07 < float(share.sum()) < 0.15 for share in shares)


@pytest.mark.parametrize(("total", "count"), [(1000, 20), (1000, 2), (40, 20), (20, 20), (3, 2), (1, 1)])
def test_points_differ_and_reach_both_ends(total, count):
    points = squares(total, count)
    assert len(points.unique()) == count and points[0] == 0 and points[-1] == total - 1
    assert bool((points.diff() > 0).all())


def test_a_measurement_that_is_not_finite_does_not_count():
    curve = torch.arange(1, 41).double()
    sampler = measured(torch.full((40,), torch.inf), curve, torch.full((40,), torch.nan), points=40)
    torch.testing.assert_close(sampler.probabilities(0), curve / curve.sum())
    assert int(sampler.measured) == 1


def test_the_root_form_and_the_memory():
    before, now = torch.ones(40).double(), torch.arange(1, 41).double()
    sampler = measured(before, now, points=40, form="root_second_moment", momentum=0.25)
    expected = 0.25 * before + 0.75 * now  # the root of the square
    torch.testing.assert_close(sampler.probabilities(0), expected / expected.sum())


def test_more_images_than_rows_are_refused():
    GradientVariance(40, images=8).check(8)
    with pytest.raises(ValueError, match=r"^images=8 must be an integer in \[2, 4\]; use 8, and as many rows"):
        GradientVariance(40, images=8).check(4)
