"""SpeeD against numbers of its released code."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import cosine, linear, quadratic
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position, SpeeD
from diffusion_lab.timesteps.speed import dual_of


@pytest.mark.parametrize(("schedule", "tau"), [(linear, 642), (quadratic, 829), (cosine, 959)])
def test_meaningful_steps_of_the_released_code(schedule, tau):
    assert SpeeD(schedule()).meaningful_steps == tau


@pytest.mark.parametrize(("schedule", "high", "low"), [(linear, 1.402, 0.280), (quadratic, 1.160, 0.232)])
def test_the_distribution_without_duals_has_two_levels_five_to_one(schedule, high, low):
    p = SpeeD(schedule(), dual=False).probabilities(0) * 1000
    assert p[5].item() == pytest.approx(high, abs=6e-4)
    assert p[-5].item() == pytest.approx(low, abs=6e-4)


def test_the_marginal_with_duals_on_the_linear_schedule():
    p = SpeeD(linear()).probabilities(0) * 1000
    for t, value in ((100, 1.543), (300, 1.543), (400, 1.402), (600, 1.402), (800, 0.140), (999, 0.140)):
        assert p[t].item() == pytest.approx(value, abs=2e-3), t
    # The dual of t = 0 is just beyond the edge, where the soft step of the released code has not reached 0.280.
    assert p[0].item() == pytest.approx(0.841, abs=0.04) and p[0] == pytest.approx(p[642].item())


def test_the_threshold_follows_the_number_of_timesteps():
    fine = SpeeD(linear(4000))
    assert abs(fine.meaningful_steps / 4 - 642) < 2  # the same process in finer steps has the same region


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_batch_of_any_size_follows_the_marginal(rows):
    sampler, updates = SpeeD(linear()), 3000
    draws = [sampler.draw(torch.empty(rows, 1), Context(Position(step), Streams(0))).t for step in range(updates)]
    late = (torch.stack(draws) >= 643).double().mean(1)
    expected = sampler.probabilities(0)[643:].sum()  # 0.050
    assert float(late.mean()) == pytest.approx(float(expected), abs=5 * float(late.std()) / updates**0.5)


@pytest.mark.parametrize("rows", [2, 6, 7])
def test_the_second_half_of_a_batch_is_the_dual_of_the_first(rows):
    """Released code: the batch is completed by the duals of its first half."""
    sampler, half = SpeeD(linear()), (rows + 1) // 2
    for step in range(20):
        t = sampler.draw(torch.empty(rows, 1), Context(Position(step), Streams(0))).t
        assert torch.equal(t[half:], dual_of(t[: rows - half], sampler.meaningful_steps))


def test_duals_lie_on_the_other_side_of_the_meaningful_steps():
    t = torch.tensor([0, 1, 641, 642, 999])
    assert dual_of(t, 642).tolist() == [642, 641, 1, 0, 357]


@pytest.mark.parametrize(
    ("key", "value"), [("suppression", 0.5), ("threshold", 0.0), ("threshold", -1.0), ("suppression", float("nan"))]
)
def test_bad_values_are_named(key, value):
    with pytest.raises(ValueError, match=f"^{key}={value} must"):
        SpeeD(linear(), **{key: value})


def test_the_cure_for_reweighting_is_not_needed_because_no_probability_is_zero():
    sampler = SpeeD(linear(), reweight=True)
    t = torch.arange(1000)
    torch.testing.assert_close(sampler.weight(t, 0).double(), 1 / (1000 * sampler.probabilities(0)), rtol=1e-6, atol=0)
