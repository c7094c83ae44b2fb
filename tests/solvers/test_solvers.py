"""What all solvers share: the law of the data comes out, and a result is a function of its arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    Epsilon,
    FixedLarge,
    FixedSmall,
    V,
    cosine,
    linear,
    quadratic,
    sqrt_linear,
)
from diffusion_lab.solvers import DDIM, DDPM, DPMSolverPP, Euler, Heun, UniPC
from tests.solvers.gaussian import SeededNoise, best_denoiser, no_noise

SOLVERS = [DDPM(20), DDIM(20), DDIM(20, eta=1.0), Heun(10), Euler(10), DPMSolverPP(10, sde=True), UniPC(10)]


def start(pixels: int, seed: int = 7) -> torch.Tensor:
    return torch.randn(1, 1, 1, pixels, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "solver",
    [DDPM(clip=False), DDPM(200, clip=False), DDIM(None, clip=False), DDIM(200, eta=0.5, clip=False), Heun(40)],
    ids=lambda s: s.describe(),
)
@pytest.mark.parametrize("make", [linear, cosine], ids=["linear", "cosine"])
def test_the_right_model_gives_the_data(solver, make):
    x = solver(best_denoiser(make(400)), start(10_000), noise=SeededNoise())
    # 10,000 pixels: standard error 0.005 of the mean, 0.0035 of the std; the rest is discretisation.
    assert x.mean().item() == pytest.approx(0.3, abs=0.015)
    assert x.std().item() == pytest.approx(0.5, abs=0.03 if "200" in solver.describe() else 0.02)


@pytest.mark.parametrize("variance", [FixedSmall(), FixedLarge()], ids=lambda v: type(v).__name__)
def test_both_fixed_variances_give_the_data_with_all_steps(variance):
    x = DDPM(clip=False)(best_denoiser(linear(400), variance=variance), start(10_000), noise=SeededNoise())
    assert x.std().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("make", [linear, quadratic, cosine, sqrt_linear], ids=lambda f: f.__name__)
@pytest.mark.parametrize("solver", [DDIM(100, clip=False), Heun(40)], ids=lambda s: s.describe())
def test_deterministic_solvers_follow_the_flow_to_its_end(solver, make):
    """For Gaussian data the flow is linear: it takes x_T to mean + std x_T as the end of the schedule becomes noise."""
    x_T = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]).reshape(5, 1, 1, 1)
    x = solver(best_denoiser(make()), x_T, noise=no_noise).flatten()
    slope = (x[4] - x[0]).item() / 4
    torch.testing.assert_close(x, x[2] + slope * x_T.flatten(), atol=1e-4, rtol=0)  # linear
    assert slope == pytest.approx(0.5, abs=0.02)
    assert x[2].item() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.describe())
def test_predictions_give_the_same_images(solver):
    results = [
        solver(best_denoiser(cosine(), prediction), start(50), noise=SeededNoise())
        for prediction in (Epsilon(), X0(), V())
    ]
    # Heun starts at sigma = 80 and the walks at alpha = 5e-5, where converting an eps in float32 costs digits.
    torch.testing.assert_close(results[1], results[2], atol=2e-4, rtol=0)
    torch.testing.assert_close(results[0], results[2], atol=2e-3, rtol=0)


def test_the_images_are_ordinary_tensors_and_the_network_is_left_trainable():
    """The walk runs in inference mode, whose tensors autograd refuses."""
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 3, padding=1))
    network.forward = lambda x, t: nn.Sequential.forward(network, x)
    images = DDIM(3)(Denoiser(network, linear(50), Epsilon(), FixedLarge()), torch.randn(2, 1, 4, 4), noise=no_noise)
    assert not images.is_inference() and not images.requires_grad
    network.train()
    network(images, None).square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.describe())
def test_same_arguments_give_the_same_bits_and_rows_do_not_mix(solver):
    denoiser = best_denoiser(cosine())
    x_T = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(0))

    class RowNoise(SeededNoise):
        def __call__(self, k, like):
            rows = [
                torch.randn(like.shape[1:], generator=torch.Generator().manual_seed(100 * k + i)) for i in self.rows
            ]
            return torch.stack(rows)

    noise = RowNoise()
    noise.rows = [0, 1, 2, 3]
    torch.manual_seed(0)
    whole = solver(denoiser, x_T, noise=noise)
    torch.manual_seed(1)
    assert torch.equal(whole, solver(denoiser, x_T, noise=noise))
    noise.rows = [2, 3]
    torch.testing.assert_close(whole[2:], solver(denoiser, x_T[2:], noise=noise), rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.describe())
def test_dtype_shape_input_and_global_randomness_are_kept(solver):
    x_T = start(9)
    before, state = x_T.clone(), torch.random.get_rng_state()
    x = solver(best_denoiser(cosine()), x_T, noise=SeededNoise())
    assert x.shape == x_T.shape and x.dtype == torch.float32 and not x.requires_grad
    assert torch.equal(x_T, before) and torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.describe())
def test_network_runs_in_eval_mode_and_gets_its_own_mode_back(solver):
    denoiser = best_denoiser(cosine())
    denoiser.network.frozen = nn.Dropout().eval()
    solver(denoiser, start(4), noise=SeededNoise())
    assert not any(denoiser.network.training_seen)
    assert denoiser.training and denoiser.network.training and not denoiser.network.frozen.training


def test_conditions_reach_every_call():
    class Conditional(nn.Module):
        def forward(self, x, t, label):
            return 0 * x + label.reshape(-1, 1, 1, 1)

    label = torch.tensor([0.25, -0.5])
    denoiser = Denoiser(Conditional(), cosine(), X0(), FixedSmall())
    x_T = torch.randn(2, 1, 2, 2)
    for solver in SOLVERS:
        x = solver(denoiser, x_T, noise=SeededNoise(), label=label)
        torch.testing.assert_close(x, label.reshape(2, 1, 1, 1).expand_as(x), atol=1e-5, rtol=0)


def test_settings_are_in_the_description():
    assert DDPM().describe() == "ddpm-full"
    assert DDPM("250", clip=False).describe() == "ddpm-250-unclipped"
    assert DDPM([10, 15, 20]).describe() == "ddpm-10,15,20"
    assert DDIM(50).describe() == "ddim-50-eta0"
    assert DDIM("ddim50", eta=0.5).describe() == "ddim-ddim50-eta0.5"
    assert Heun().describe() == "heun-18-rho7-sigma0.002-80-unclipped"


def test_the_bar_says_how_many_images_are_sampled_and_not_a_word_of_the_protocol(capsys, monkeypatch):
    monkeypatch.setattr("diffusion_lab.progress.LINE_EVERY", 0.0)
    DDIM(2)(best_denoiser(cosine()), start(4), noise=no_noise, progress=True)
    assert capsys.readouterr().out.startswith(f"sampling {len(start(4))} images 1/2 solver steps")


def test_bar_is_silent_where_there_is_no_terminal(capsys):
    DDIM(5)(best_denoiser(cosine()), start(4), noise=no_noise, progress=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DDPM(steps=0), r"^steps=0 must be a positive integer"),
        (lambda: DDIM(steps="many"), r"^steps='many' must be"),
        (lambda: DDIM(steps=True), r"^steps=True must be"),
        (lambda: DDIM(eta=1.5), r"^eta=1.5 must lie in \[0, 1\]; 0.0 is deterministic"),
        (lambda: DDIM(eta="a"), r"^eta='a' must lie in"),
        (lambda: DDPM(clip="no"), r"^clip='no' must be true or false; "),
        (lambda: Heun(steps=0), r"^steps=0 must be an integer >= 1; "),
        (lambda: Heun(rho=0.5), r"^rho=0.5 must lie in \[1, inf\); use 7.0"),
        (lambda: Heun(sigma_min=100.0), r"^sigma_min=100.0 must lie in \(0, 80\); "),
        (lambda: Heun(sigma_max=-1.0), r"^sigma_max=-1.0 must lie in"),
        (lambda: Heun(clip=None), r"^clip=None must be true or false"),
        (lambda: DDPM(200).check(linear(100)), r"^steps=200 must not take 200 of 100 timesteps"),
        (lambda: DDIM("ddim300").check(linear(1000)), r"^steps='ddim300' must be"),
        (
            lambda: Heun(sigma_min=1e-3, sigma_max=5e-3).check(linear()),
            r"^sigma_min=0.001 must leave a range .* 0.01.*157",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
