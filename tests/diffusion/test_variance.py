"""Reverse variances against their definitions, at both ends of the learned range and on respaced schedules."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import (
    X0,
    FixedLarge,
    FixedSmall,
    LearnedRange,
    NoiseSchedule,
    bound_weights,
    cosine,
    edm,
    linear,
    rectified_flow,
)

T = torch.tensor([0, 1, 7, 999])


def test_fixed_small_is_the_posterior_variance_with_its_first_entry_replaced():
    schedule = linear()
    got = FixedSmall().log_variance(torch.zeros(4, 0, 2, 2), T, schedule)
    expected = schedule.posterior_variance[[1, 1, 7, 999]].log().float()
    assert got.shape == (4, 1, 1, 1)
    torch.testing.assert_close(got.flatten(), expected)


def test_fixed_large_is_beta_with_its_first_entry_replaced():
    schedule = linear()
    got = FixedLarge().log_variance(torch.zeros(4, 0, 2, 2), T, schedule).flatten()
    assert got[0].item() == pytest.approx(schedule.posterior_variance[1].log().item())
    torch.testing.assert_close(got[1:], schedule.betas[[1, 7, 999]].log().float())


PATHS = [edm(1000), edm(1000).respace(torch.arange(9, 1000, 50)), rectified_flow(50), linear(100)]


@pytest.mark.parametrize("schedule", PATHS, ids=["edm", "edm, 20 steps", "rectified_flow", "linear"])
def test_fixed_large_is_exact_for_unit_gaussian_data_on_any_path(schedule: NoiseSchedule) -> None:
    """With the best estimate alpha x/n^2 each step gives x_{t-1} the variance n_{t-1}^2 that it has; and the ratio of
    the two fixed variances, which is all that the bound sees, is that of the variance-preserving path."""
    t = torch.arange(schedule.num_timesteps)
    alpha, sigma = schedule.signal_scale, schedule.noise_scale
    norm = alpha.square() + sigma.square()
    variance = FixedLarge().log_variance(torch.zeros(len(t), 0, 1, 1, dtype=torch.float64), t, schedule).flatten().exp()
    gain = schedule.posterior_mean_coef1 * alpha / norm + schedule.posterior_mean_coef2
    made = gain.square() * norm + variance
    torch.testing.assert_close(made[1:], norm[:-1], rtol=1e-9, atol=0)
    a = schedule.alphas_cumprod
    preserving = NoiseSchedule(1 - a / torch.cat([a.new_ones(1), a[:-1]])) if a[-1] > 1e-30 else schedule
    for path in (schedule, preserving):
        kept = bound_weights(path, X0(), FixedLarge())[1:]
        torch.testing.assert_close(kept, bound_weights(schedule, X0(), FixedLarge())[1:], rtol=1e-6, atol=0)


def test_learned_range_ends_at_the_fixed_variances_and_is_not_clipped():
    schedule, variance = cosine(), LearnedRange()
    small = FixedSmall().log_variance(torch.zeros(4, 0, 2, 2), T, schedule)
    large = schedule.betas[T].log().float().reshape(4, 1, 1, 1)
    out = torch.ones(4, 3, 2, 2)
    torch.testing.assert_close(variance.log_variance(-out, T, schedule), small.expand(4, 3, 2, 2))
    torch.testing.assert_close(variance.log_variance(out, T, schedule), large.expand(4, 3, 2, 2))
    torch.testing.assert_close(variance.log_variance(0 * out, T, schedule), ((small + large) / 2).expand(4, 3, 2, 2))
    torch.testing.assert_close(variance.log_variance(3 * out, T, schedule), (2 * large - small).expand(4, 3, 2, 2))


def test_both_conventions_for_the_weight_of_the_bound():
    assert LearnedRange().loss_weight(cosine(4000)) == 4.0  # improved-diffusion: T/1000
    assert LearnedRange(vlb_weight=1.0).loss_weight(cosine(4000)) == 1.0  # guided-diffusion
    assert FixedSmall().loss_weight(cosine(4000)) == 0.0


@pytest.mark.parametrize("value", [-0.1, float("nan"), "big", float("inf")])
def test_bad_weight_is_named(value):
    with pytest.raises(ValueError, match=r"^vlb_weight=.* must lie in \[0, inf\); use null"):
        LearnedRange(vlb_weight=value)
