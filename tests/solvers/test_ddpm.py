"""Ancestral sampling step by step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import X0, Denoiser, Epsilon, FixedLarge, FixedSmall, LearnedRange, cosine, linear
from diffusion_lab.solvers import DDPM, space_timesteps
from tests.solvers.gaussian import SeededNoise, best_denoiser


class Fixed(nn.Module):
    """Answers one number everywhere, and another one for the variance."""

    def __init__(self, value: float, variance_out: float | None = None) -> None:
        super().__init__()
        self.value, self.variance_out = value, variance_out

    def forward(self, x, t):
        out = torch.full_like(x, self.value)
        return out if self.variance_out is None else torch.cat([out, torch.full_like(x, self.variance_out)], 1)


def test_network_sees_original_timesteps_and_noise_is_drawn_but_at_the_end():
    denoiser, noise = best_denoiser(linear()), SeededNoise()
    DDPM(25)(denoiser, torch.zeros(2, 1, 1, 1), noise=noise)
    assert denoiser.network.seen == space_timesteps(1000, 25).flip(0).tolist()
    assert noise.asked == list(range(24))


def test_all_steps_are_every_timestep_backwards():
    denoiser = best_denoiser(linear(30))
    DDPM()(denoiser, torch.zeros(1, 1, 1, 1), noise=SeededNoise())
    assert denoiser.network.seen == list(range(29, -1, -1))


@pytest.mark.parametrize("steps", [None, 7])
@pytest.mark.parametrize(
    ("variance", "out"), [(FixedSmall(), None), (FixedLarge(), None), (LearnedRange(), -1.0), (LearnedRange(), 0.5)]
)
def test_walk_is_the_textbook_recursion(steps, variance, out):
    """x <- C1 clip(x0) + C2 x + sqrt(V) z, written out in float64 from the signal levels alone."""
    schedule, value = cosine(20), 0.2
    x_T = torch.randn(3, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    got = DDPM(steps)(Denoiser(Fixed(value, out), schedule, Epsilon(), variance), x_T, noise=SeededNoise())

    kept = torch.arange(20) if steps is None else space_timesteps(20, steps)
    signal = [1.0, *schedule.alphas_cumprod[kept].tolist()]
    posterior = [(1 - a / p) * (1 - p) / (1 - a) for p, a in zip(signal, signal[1:], strict=False)]
    x = x_T.double()
    for k, i in enumerate(range(len(kept), 0, -1)):
        a, before = signal[i], signal[i - 1]
        b = 1 - a / before
        x0 = ((x - (1 - a) ** 0.5 * value) / a**0.5).clamp(-1, 1)
        x = before**0.5 * b / (1 - a) * x0 + (1 - b) ** 0.5 * (1 - before) / (1 - a) * x
        if i > 1:
            fraction = {FixedSmall: 0.0, FixedLarge: 1.0}.get(type(variance), ((out or 0) + 1) / 2)
            std = (b**fraction * posterior[i - 1] ** (1 - fraction)) ** 0.5
            x = x + std * SeededNoise()(k, x_T).double()
    torch.testing.assert_close(got.double(), x, atol=2e-6, rtol=0)


@pytest.mark.parametrize("steps", [250, 50])
def test_moments_are_those_of_the_exact_recursion(steps):
    """With the best denoiser of Gaussian data each step is linear in x, so mean and variance have a recursion."""
    schedule, mean, var = linear().respace(space_timesteps(1000, steps)), 0.0, 1.0
    for t in range(steps - 1, -1, -1):
        a = schedule.alphas_cumprod[t].item()
        gain = a**0.5 * 0.25 / (a * 0.25 + 1 - a)
        c1, c2 = schedule.posterior_mean_coef1[t].item(), schedule.posterior_mean_coef2[t].item()
        mean = c1 * (0.3 - gain * a**0.5 * 0.3) + (c1 * gain + c2) * mean
        var = (c1 * gain + c2) ** 2 * var + schedule.posterior_variance[t].item()
    x_T = torch.randn(1, 1, 200, 200, generator=torch.Generator().manual_seed(7))
    x = DDPM(steps, clip=False)(best_denoiser(linear()), x_T, noise=SeededNoise())
    # 3 standard errors; the deficit that few steps leave (0.486 and 0.44 for 0.5) is well outside.
    assert x.mean().item() == pytest.approx(mean, abs=0.008)
    assert x.std().item() == pytest.approx(var**0.5, abs=0.006)


def test_last_step_returns_the_clipped_estimate():
    denoiser = Denoiser(Fixed(3.0), cosine(20), X0(), FixedSmall())
    assert DDPM(5)(denoiser, torch.randn(1, 1, 2, 2), noise=SeededNoise()).tolist() == torch.ones(1, 1, 2, 2).tolist()
    unclipped = DDPM(5, clip=False)(denoiser, torch.randn(1, 1, 2, 2), noise=SeededNoise())
    torch.testing.assert_close(unclipped, torch.full((1, 1, 2, 2), 3.0))


def test_learned_variance_at_the_ends_of_its_range_is_the_fixed_one():
    x_T = torch.randn(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    small, learned = (
        DDPM(10)(best_denoiser(cosine(), variance=v, variance_out=out), x_T, noise=SeededNoise())
        for v, out in ((FixedSmall(), None), (LearnedRange(), -1.0))
    )
    torch.testing.assert_close(small, learned)
