"""Euler, DPM-Solver++ and UniPC: what they agree on with other solvers, and what all variants do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import X0, Denoiser, FixedSmall, cosine, linear
from diffusion_lab.diffusion.path import GaussianPath
from diffusion_lab.solvers import DDIM, DPMSolverPP, Euler, Guided, Heun, Listed, Solver, Uniform, UniPC
from diffusion_lab.solvers.multistep import moment
from tests.solvers.flow import MEAN, Exact, edm, rectified
from tests.solvers.gaussian import SeededNoise, best_denoiser, no_noise

KINDS = [Euler(12), DPMSolverPP(12), DPMSolverPP(12, sde=True), UniPC(12), UniPC(12, 3, "bh1")]
PATHS = {"cosine": lambda: cosine(200), "rectified": lambda: rectified(200), "edm": lambda: edm(200)}


def noise(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_euler_is_the_step_on_the_linear_paths_velocity():
    path, x_T = rectified(200), noise()
    kept = Euler(20).indices(path)
    tau = [*path.noise_scale[kept].tolist(), 0.0]
    model, x = Exact(path), x_T * math.hypot(1 - tau[0], tau[0])
    for k, t in enumerate(kept.tolist()):
        x0, eps = model.estimate(x, torch.full((len(x),), t))
        x = x + (tau[k + 1] - tau[k]) * (eps - x0)
    torch.testing.assert_close(Euler(20, clip=False)(Exact(path), x_T, noise=no_noise), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("make", [linear, cosine], ids=lambda f: f.__name__)
def test_euler_is_ddim_and_unipc_without_history_on_a_variance_preserving_path(make, clip):
    schedule, x_T = make(200), noise()
    ddim = DDIM(20, clip=clip)(best_denoiser(schedule), x_T, noise=no_noise)
    euler = Euler(20, Uniform(), clip)(best_denoiser(schedule), x_T, noise=no_noise)
    torch.testing.assert_close(euler, ddim, rtol=0, atol=1e-10)
    # With two timesteps both steps of a multistep solver are of first order: the first and the last.
    two = DPMSolverPP(2, clip=clip)(best_denoiser(schedule), x_T, noise=no_noise)
    assert torch.equal(two, Euler(2, clip=clip)(best_denoiser(schedule), x_T, noise=no_noise))
    assert not torch.allclose(
        DPMSolverPP(20, False, Uniform(), clip)(best_denoiser(schedule), x_T, noise=no_noise), ddim
    )


@pytest.mark.parametrize("solver", KINDS, ids=lambda s: s.describe())
def test_paths_with_the_same_snr_are_the_same_model(solver):
    path = rectified(200)
    norm = (path.signal_scale**2 + path.noise_scale**2).sqrt()
    preserving = GaussianPath(path.signal_scale / norm, path.noise_scale / norm)
    ends = [solver(Exact(p), noise(), noise=SeededNoise()) for p in (path, preserving)]
    torch.testing.assert_close(*ends, rtol=0, atol=1e-11)


@pytest.mark.parametrize("solver", [*KINDS, Heun(6)], ids=lambda s: s.describe())
def test_a_denoiser_with_a_network_is_called_in_the_paths_coordinates(solver):
    class Answer(nn.Module):
        def forward(self, x, t):
            return Exact(rectified(200)).estimate(x, t).x0

    model = Denoiser(Answer(), rectified(200), X0(), FixedSmall())
    found, exact = (solver(m, noise(), noise=SeededNoise()) for m in (model, Exact(rectified(200))))
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("solver", KINDS, ids=lambda s: s.describe())
def test_clipped_guided_and_respaced_variants(solver, path):
    schedule, x_T = PATHS[path](), noise()
    model = Exact(schedule)
    free = type(solver)(solver.steps, clip=False)
    assert torch.isfinite(free(model, x_T, noise=SeededNoise())).all()
    assert len(model.seen) == 12 and model.seen == sorted(set(model.seen), reverse=True)  # N calls
    # What is guided is another model, here one that says 4 x0, and is clipped.
    guided = Guided(solver, 4.0)(model, x_T + 3, noise=SeededNoise())
    assert torch.equal(guided, solver(Exact(schedule, 4.0), x_T + 3, noise=SeededNoise()))
    assert guided.abs().max() <= 1 + 1e-12
    assert Guided(free, 4.0)(model, x_T + 3, noise=SeededNoise()).abs().max() > 1
    # Respaced to the timesteps that it visits, it does the same with all of them.
    kept = free.indices(schedule)
    respaced = Exact(schedule).respace(kept.flip(0))
    whole = free.with_steps(None)(respaced, x_T, noise=SeededNoise())
    torch.testing.assert_close(whole, free(model, x_T, noise=SeededNoise()), rtol=0, atol=1e-6)


def test_noise_is_asked_for_by_the_reverse_process_alone_and_not_at_its_end():
    drawn = SeededNoise()
    DPMSolverPP(12, sde=True)(Exact(rectified(200)), noise(), noise=drawn)
    assert drawn.asked == list(range(11))
    calm = Heun(6, s_churn=0.0)
    assert torch.equal(
        calm(best_denoiser(cosine()), noise(), noise=no_noise),
        Heun(6)(best_denoiser(cosine()), noise(), noise=no_noise),
    )
    drawn = SeededNoise()
    Heun(6, s_churn=3.0, s_max=10.0)(best_denoiser(cosine(4000)), noise(), noise=drawn)
    levels = cosine(4000).noise_level[Heun(6).indices(cosine(4000))]
    assert drawn.asked == [k for k in range(6) if levels[k] <= 10] and 0 < len(drawn.asked) < 6


def test_at_a_few_steps_a_higher_order_and_a_trailing_spacing_are_nearer_to_the_flow():
    """At a user's number of steps, 15, over the whole range of a path of 1000 timesteps."""
    path, x_T = cosine(1000), noise()
    high = path.noise_level[-1].item()
    exact = MEAN + (x_T * math.hypot(1, high) - MEAN) * 0.5 / math.hypot(0.5, high)

    def error(solver: Solver) -> float:
        return (solver(Exact(path), x_T, noise=no_noise) - exact).abs().max().item()

    for solver in (DPMSolverPP(15, clip=False), UniPC(15, clip=False)):
        assert error(solver) < error(Euler(15, clip=False)) / 5
    assert error(DPMSolverPP(15, clip=False)) < error(DPMSolverPP(15, False, Uniform(), False)) / 5


@pytest.mark.parametrize("h", [1e-3, 0.3, 0.999, 1.0, 7.0])
def test_moments_are_their_integral(h):
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    for n in range(4):
        integral = (h * (h * (u - 1)).exp() * u**n).mean().item()
        assert moment(n, h) == pytest.approx(integral, rel=1e-8)


def test_settings_are_in_the_description():
    assert Euler().describe() == "euler-50-trailing"
    assert Euler(None, Listed([9, 4, 0]), clip=False).describe() == "euler-listed-9,4,0-unclipped"
    assert DPMSolverPP(sde=True).describe() == "dpmpp2m-sde-20-trailing"
    assert UniPC(10, 3, "bh1").describe() == "unipc3-bh1-10-trailing"
    churned = Heun(s_churn=40.0, s_min=0.05, s_max=50.0, s_noise=1.003).describe()
    assert churned == "heun-18-rho7-sigma0.002-80-churn40-0.05-50-noise1.003-unclipped"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Euler(0), r"^steps=0 must be a positive integer"),
        (lambda: DPMSolverPP(sde="yes"), r"^sde='yes' must be true or false"),
        (lambda: UniPC(order=4), r"^order=4 must be an integer in \[1, 3\]"),
        (lambda: UniPC(variant="bh3"), r"^variant=bh3 must be one of bh1, bh2"),
        (lambda: UniPC(300).check(linear(100)), r"^steps=300 must be an integer in \[1, 100\]"),
        (lambda: UniPC(300, spacing=Uniform()).check(linear(100)), r"^steps=300 must not take 300 of 100"),
        (lambda: Heun(s_churn=-1.0), r"^s_churn=-1.0 must lie in \[0, inf\)"),
        (lambda: Heun(s_min=2.0, s_max=1.0), r"^s_max=1.0 must lie in \[2, inf\]"),
        (lambda: Heun(s_noise=0.0), r"^s_noise=0.0 must lie in \(0, inf\)"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
