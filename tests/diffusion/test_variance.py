"""Reverse variances against their definitions, at both ends of the learned range and on respaced schedules."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import FixedLarge, FixedSmall, LearnedRange, cosine, linear

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
