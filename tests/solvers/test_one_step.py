"""A single step, from pure noise to the data."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser, Epsilon, FixedSmall, Velocity, linear, rectified_flow
from diffusion_lab.solvers import (
    DDIM,
    DDPM,
    DPMSolverPP,
    Euler,
    Heun,
    Karras,
    Solver,
    Trailing,
    Uniform,
    UniPC,
    space_timesteps,
)
from tests.solvers.gaussian import best_denoiser, no_noise

T = 100
X = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
SOLVERS = [
    Euler(1, clip=False),
    Euler(1, Uniform(), clip=False),
    Euler(1, Karras(sigma_max=1e4), clip=False),
    DDIM(1, clip=False),
    DDIM("ddim1", clip=False),
    Heun(1, sigma_max=1e4),
    DPMSolverPP(1, clip=False),
    DPMSolverPP(1, sde=True, clip=False),
    UniPC(1, clip=False),
]


class Line(nn.Module):
    """u(x, t) = 0.7 x + 0.2."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return 0.7 * x + 0.2


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.describe())
def test_one_step_of_a_rectified_flow_is_x_minus_tau_u(solver: Solver) -> None:
    schedule = rectified_flow(T)
    denoiser = Denoiser(Line(), schedule, Velocity(), FixedSmall())
    solver.check(schedule)
    tau = float(schedule.sigma(torch.tensor([T - 1]), 1, torch.float64))
    x_t = ((1 - tau) ** 2 + tau**2) ** 0.5 * X.double()  # pure noise on the path, whose variance is this at tau < 1
    assert 1 - 1 / T < tau <= 1
    got = solver(denoiser, X, noise=no_noise).double()  # computed in float32; the timestep before differs by 1e-2
    torch.testing.assert_close(got, x_t - tau * (0.7 * x_t + 0.2), rtol=0, atol=1e-4)


@pytest.mark.parametrize("solver", [*SOLVERS, DDPM(1, clip=False)], ids=lambda solver: solver.describe())
def test_one_step_gives_the_estimate_at_the_last_timestep(solver: Solver) -> None:
    denoiser = best_denoiser(linear(T), Epsilon())
    last = torch.full((len(X),), T - 1)
    with torch.no_grad():
        want = denoiser.estimate(X, last).x0
    torch.testing.assert_close(solver(denoiser, X, noise=no_noise), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [1, "1", [1], "ddim1"])
def test_the_one_timestep_is_the_last(steps: int | str | list[int]) -> None:
    assert space_timesteps(T, steps).tolist() == [T - 1]
    assert Trailing().indices(linear(T), 1).tolist() == [T - 1]
