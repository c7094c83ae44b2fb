"""Timesteps in proportion to the variance of their gradients: the measured points and the resulting distribution."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, GradientVariance, Position, StepRecord
from diffusion_lab.timesteps.gradient_variance import squares

# Xie & Agam, Table 1: ten ranges of timesteps with equal losses, most of them at small t.
SIZES = torch.tensor([5, 8, 10, 14, 19, 26, 38, 57, 100, 723])
CURVE = torch.repeat_interleave(0.1 / SIZES.double(), SIZES)


class Moments:
    """A probe with given moments at every timestep."""

    def __init__(self, curve: torch.Tensor) -> None:
        self.curve = curve

    def grad_moments(self, x0, t, seed, **cond):
        return self.curve[t], self.curve[t].square()


def measured(*curves: torch.Tensor, **arguments) -> GradientVariance:
    """The sampler after one update per curve."""
    sampler = GradientVariance(len(curves[0]), every=1, images=8, uniform=0.0, **arguments)
    record = StepRecord(torch.zeros(8, 1), {}, torch.zeros(8).long(), torch.zeros(8), torch.zeros(8))
    for step, curve in enumerate(curves):
        sampler.observe(record, Context(Position(step), Streams(0), probe=Moments(curve)))
    return sampler


def test_the_probabilities_are_the_curve_when_every_timestep_is_measured():
    torch.testing.assert_close(measured(CURVE, points=1000).probabilities(0), CURVE)


def test_twenty_points_find_a_curve_that_is_steep_at_little_noise():
    """With equidistant points the first four slots would have 0.54 of the mass, not 0.4."""
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


def test_more_images_than_rows_are_rejected():
    GradientVariance(40, images=8).check(8)
    with pytest.raises(ValueError, match=r"^images=16 must be an integer in \[8, 12\]; use 32, and as many rows"):
        GradientVariance(40, images=16).check(12)


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [
        (1_000_000, 100_000, [100 * 2**k for k in range(10)] + list(range(100_000, 1_000_001, 100_000))),
        (400, 20, list(range(20, 401, 20))),  # a short run: `first` is more than `every`
        (1000, 300, [100, 200, 300, 600, 900]),
        (4, 1, [1, 2, 3, 4]),
    ],
)
def test_measured_is_at_doubling_steps_and_then_at_equal_distances(steps, every, expected):
    sampler = GradientVariance(40, every=every)
    assert [n for n in range(1, steps + 1) if sampler.due(n)] == expected
    late = [n for n in expected if n > min(100, every)]
    assert all(now <= 2 * before for before, now in zip(expected, late, strict=False))  # never older than half the run


def test_before_the_first_measurement_the_distribution_is_uniform_and_the_log_says_so():
    sampler = GradientVariance(40, every=500)
    probe = Moments(torch.arange(1, 41).double())
    record = StepRecord(torch.zeros(32, 1), {}, torch.zeros(32).long(), torch.zeros(32), torch.zeros(32))
    for step in range(99):
        sampler.observe(record, Context(Position(step), Streams(0), probe=probe))
    torch.testing.assert_close(sampler.probabilities(0), torch.full((40,), 1 / 40).double())
    assert {key: int(value) for key, value in sampler.log_values().items()} == {"measurements": 0}
    sampler.observe(record, Context(Position(99), Streams(0), probe=probe))
    assert float(sampler.probabilities(0)[-1]) > 1.5 / 40 and int(sampler.log_values()["measurements"]) == 1


class Noisy:
    """A probe of independent images whose moments are Gaussian with mean 10 and standard deviation 2."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def grad_moments(self, x0, t, seed, **cond):
        moment = 10 + 2 * torch.randn(len(t), len(x0), generator=self.generator, dtype=torch.float64).mean(1)
        return moment, moment.square()


@pytest.mark.parametrize(("measurements", "factor"), [(1, 1.0), (2, 0.5**0.5), (12, 3**-0.5)])
def test_the_standard_error_in_the_log_is_that_of_the_estimate(measurements, factor):
    """2/sqrt(32)/10 after one measurement; with memory 1/2 the sum of 4^-k weights is 1, 1/2, .. 1/3 of it."""
    sampler = GradientVariance(1000, every=1, points=1000, images=32)
    record = StepRecord(torch.zeros(32, 1), {}, torch.zeros(32).long(), torch.zeros(32), torch.zeros(32))
    probe = Noisy()
    for step in range(measurements):
        sampler.observe(record, Context(Position(step), Streams(0), probe=probe))
        noisy = sampler.moment
    stated = float(sampler.log_values()["relative_error"])
    assert stated == pytest.approx(0.2 / 32**0.5 * factor, rel=0.05)
    if measurements == 1:  # the estimates scatter as much as is stated
        assert float(noisy.std() / noisy.mean()) == pytest.approx(stated, rel=0.1)


def test_each_group_has_its_own_images_and_noise():
    sampler, calls = GradientVariance(40, every=1, images=10), []

    class Recorder:
        def grad_moments(self, x0, t, seed, **cond):
            calls.append((x0.flatten().tolist(), cond["label"].tolist(), seed))
            return torch.ones(len(t)), torch.ones(len(t))

    rows = torch.arange(12.0)
    record = StepRecord(rows[:, None], {"label": rows.long()}, rows.long(), rows, rows)
    for step in range(2):
        sampler.observe(record, Context(Position(step), Streams(0), probe=Recorder()))
    groups = [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert [images for images, _, _ in calls] == groups * 2 == [labels for _, labels, _ in calls]
    assert len({seed for _, _, seed in calls}) == 8
