"""DDIM: the variance at eta = 1, clipping, and its relation to ancestral sampling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import X0, Denoiser, Epsilon, FixedSmall, cosine, linear, quadratic
from diffusion_lab.solvers import DDIM, DDPM, space_timesteps
from tests.solvers.gaussian import SeededNoise, best_denoiser, no_noise


@pytest.mark.parametrize("make", [linear, quadratic, cosine])
@pytest.mark.parametrize("steps", [1000, 50])
def test_variance_at_eta_one_is_the_posterior_variance(make, steps):
    schedule = make().respace(space_timesteps(1000, steps))
    a = [1.0, *schedule.alphas_cumprod.tolist()]
    got = [DDIM(eta=1.0).step_variance(now, after) for after, now in zip(a, a[1:], strict=False)]
    torch.testing.assert_close(torch.tensor(got).double(), schedule.posterior_variance, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("clip", [True, False])
def test_eta_one_is_ancestral_sampling_with_the_small_variance(clip):
    denoiser = best_denoiser(cosine())
    x_T = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    ddim = DDIM(25, eta=1.0, clip=clip)(denoiser, x_T, noise=SeededNoise())
    ddpm = DDPM(25, clip=clip)(denoiser, x_T, noise=SeededNoise())
    torch.testing.assert_close(ddim, ddpm, atol=2e-5, rtol=0)


def test_noise_grows_with_eta_and_none_is_drawn_at_zero_or_at_the_end():
    denoiser, x_T, noise = best_denoiser(linear()), torch.zeros(1, 1, 1, 1), SeededNoise()
    DDIM(10)(denoiser, x_T, noise=no_noise)
    DDIM(10, eta=0.3)(denoiser, x_T, noise=noise)
    assert noise.asked == list(range(9))
    assert DDIM(eta=0.5).step_variance(0.3, 0.6) == pytest.approx(DDIM(eta=1.0).step_variance(0.3, 0.6) / 4)


def test_timesteps_are_original_ones():
    for steps in (10, "ddim10", "3,4"):
        denoiser = best_denoiser(linear())
        DDIM(steps)(denoiser, torch.zeros(1, 1, 1, 1), noise=no_noise)
        assert denoiser.network.seen == space_timesteps(1000, steps).flip(0).tolist()


class Wild(nn.Module):
    """An x0 estimate far outside [-1, 1]."""

    def forward(self, x, t):
        return torch.full_like(x, 3.0)


def test_eps_is_derived_again_from_the_clipped_estimate():
    """Two steps by hand: x' = sqrt(A') c + sqrt(1-A') (x - sqrt(A) c)/sqrt(1-A) with c = clip(3) = 1, then c."""
    schedule = linear()
    x_T = torch.tensor([0.5, -1.5]).reshape(2, 1, 1, 1)
    trace = []

    class Tracing(Wild):
        def forward(self, x, t):
            trace.append(x.clone())
            return super().forward(x, t)

    out = DDIM([1, 1])(Denoiser(Tracing(), schedule, X0(), FixedSmall()), x_T, noise=no_noise)
    late, early = schedule.alphas_cumprod[500].item(), schedule.alphas_cumprod[0].item()
    expected = early**0.5 + (1 - early) ** 0.5 * (x_T - late**0.5) / (1 - late) ** 0.5
    torch.testing.assert_close(trace[1], expected)
    assert torch.equal(out, torch.ones_like(out))


def test_clip_off_keeps_the_estimate():
    x = DDIM(10, clip=False)(Denoiser(Wild(), linear(), X0(), FixedSmall()), torch.randn(1, 1, 2, 2), noise=no_noise)
    torch.testing.assert_close(x, torch.full_like(x, 3.0))


def test_clip_changes_nothing_where_estimates_stay_inside():
    denoiser = best_denoiser(cosine(), Epsilon(), mean=0.0, std=0.05)
    x_T = torch.randn(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    clipped, free = (DDIM(20, clip=c)(denoiser, x_T, noise=no_noise) for c in (True, False))
    torch.testing.assert_close(clipped, free, atol=1e-4, rtol=0)
