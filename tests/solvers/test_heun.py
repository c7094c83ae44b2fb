"""EDM's solver: its levels, its number of calls, its order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import X0, Denoiser, Epsilon, FixedSmall, cosine, linear, quadratic
from diffusion_lab.solvers import Guided, Heun
from tests.solvers.gaussian import best_denoiser, no_noise


@pytest.mark.parametrize("steps", [2, 18, 50])
def test_it_calls_the_network_2n_minus_1_times(steps):
    denoiser = best_denoiser(cosine())
    Heun(steps)(denoiser, torch.zeros(1, 1, 1, 1), noise=no_noise)
    assert len(denoiser.network.seen) == 2 * steps - 1


def test_levels_are_the_papers_moved_to_the_nearest_of_the_model():
    schedule, low = cosine(), cosine().noise_level[0].item()
    indices = Heun(18).indices(schedule)
    high = 80.0
    for i, index in enumerate(indices.tolist()):
        sigma = (high ** (1 / 7) + i / 17 * (low ** (1 / 7) - high ** (1 / 7))) ** 7
        distance = (schedule.noise_level - sigma).abs()
        assert distance[index] == distance.min()
    assert indices[-1] == 0 and (indices.diff() < 0).all()


@pytest.mark.parametrize(
    ("make", "low", "high"), [(linear, 0.0100005, 80), (quadratic, 0.0100005, 36.9119), (cosine, 0.0064254, 80)]
)
def test_range_is_brought_into_the_models(make, low, high):
    schedule = make()
    levels = schedule.noise_level[Heun(18).indices(schedule)]
    assert levels[-1].item() == pytest.approx(low, rel=1e-4)
    assert levels[0].item() == pytest.approx(high, rel=0.02)  # the nearest of the model


def test_network_gets_the_timestep_of_each_level_and_an_input_of_the_models_scale():
    schedule, seen = linear(), []

    class Tracing(nn.Module):
        def forward(self, x, t):
            seen.append((x.dtype, x.flatten()[0].item(), t[0].item()))
            return torch.zeros_like(x)

    Heun(5)(Denoiser(Tracing(), schedule, Epsilon(), FixedSmall()), torch.ones(1, 1, 1, 1), noise=no_noise)
    indices = Heun(5).indices(schedule).tolist()
    assert [t for _, _, t in seen] == [indices[0], *(i for i in indices[1:] for _ in range(2))]
    # eps_hat = 0, so x stays sigma_max x_T and enters as x / sqrt(1 + sigma^2), in float32.
    sigma = schedule.noise_level[indices]
    assert all(dtype == torch.float32 for dtype, _, _ in seen)
    assert seen[0][1] == pytest.approx((sigma[0] / (1 + sigma[0] ** 2).sqrt()).item(), rel=1e-6)
    assert seen[1][1] == pytest.approx((sigma[0] / (1 + sigma[1] ** 2).sqrt()).item(), rel=1e-6)


def test_walk_is_heuns_recursion_in_float64():
    schedule, mean, std = linear(), 0.3, 0.5
    x_T = torch.randn(3, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    got = Heun(12)(best_denoiser(schedule), x_T, noise=no_noise)
    sigma = [*schedule.noise_level[Heun(12).indices(schedule)].tolist(), 0.0]

    def derivative(x, s):  # D = (std^2 x + s^2 mean)/(std^2 + s^2), the best denoiser in EDM's coordinates
        return (x - (std**2 * x + s**2 * mean) / (std**2 + s**2)) / s

    x = x_T.double() * sigma[0]
    for now, after in zip(sigma, sigma[1:], strict=False):
        euler = x + (after - now) * derivative(x, now)
        x = euler if after == 0 else x + (after - now) * (derivative(x, now) + derivative(euler, after)) / 2
    torch.testing.assert_close(got.double(), x, atol=2e-5, rtol=0)


def test_error_falls_as_the_square_of_the_step():
    """Between two noise levels the exact flow is x -> mean + (x-mean) sqrt((std^2+s'^2)/(std^2+s^2))."""
    schedule = linear(20_000)  # many levels, so that rounding to them does not matter
    denoiser, x_T = best_denoiser(schedule), torch.ones(1, 1, 1, 1)
    errors = []
    for steps in (10, 20, 40):
        table = schedule.noise_level[Heun(steps, sigma_min=0.4, sigma_max=10.0).indices(schedule)]
        s0, s1 = table[0].item(), table[-1].item()
        x = Heun(steps, sigma_min=0.4, sigma_max=10.0)(denoiser, x_T.double(), noise=no_noise).item()
        # The last, Euler step from s1 to 0 lands on D, which is linear in x: undo it.
        x = ((0.25 + s1**2) * x - s1**2 * 0.3) / 0.25
        exact = 0.3 + (s0 - 0.3) * ((0.25 + s1**2) / (0.25 + s0**2)) ** 0.5
        errors.append(abs(x - exact))
    assert 3.0 < errors[0] / errors[1] < 5.5
    assert 3.0 < errors[1] / errors[2] < 5.5


def test_clip_bounds_the_result():
    class Wild(nn.Module):
        def forward(self, x, t):
            return torch.full_like(x, 3.0)

    denoiser = Denoiser(Wild(), cosine(), X0(), FixedSmall())
    x = Heun(10, clip=True)(denoiser, torch.randn(1, 1, 2, 2), noise=no_noise)
    torch.testing.assert_close(x, torch.ones_like(x))
    free = Heun(10)(denoiser, torch.randn(1, 1, 2, 2), noise=no_noise)
    torch.testing.assert_close(free, torch.full_like(free, 3.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("steps", ["ddim50", [5, 5], 0])
def test_other_forms_of_steps_are_refused_also_from_a_solver_around_it(steps):
    with pytest.raises(ValueError, match="^steps=.* must be an integer >= 1"):
        Guided(Heun(), steps=steps)
    assert Guided(Heun(), steps=7).base.steps == 7
