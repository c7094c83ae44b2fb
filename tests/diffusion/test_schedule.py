"""Schedules against reference values computed with the authors' code, and the tables against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    NoiseSchedule,
    cosine,
    extract,
    fdm,
    laplace,
    linear,
    quadratic,
    sigmoid,
    sqrt_linear,
)

ALL = [linear, quadratic, cosine, sqrt_linear, sigmoid, laplace, fdm]


def stable_diffusion(num_timesteps: int = 1000) -> NoiseSchedule:
    return sqrt_linear(num_timesteps, beta_start=0.00085, beta_end=0.012)


@pytest.mark.parametrize(
    ("schedule", "first", "last", "rtol"),  # rtol: half a unit of the last digit that is known
    [
        (linear(1000), 0.9999, 4.035829765e-05, 1e-9),
        (quadratic(1000), 0.9999, 7.334124595e-04, 1e-9),
        (cosine(1000), 0.9999587158, 2.428766907e-09, 1e-9),
        (cosine(4000), 0.9999901342, 1.517980469e-10, 1e-9),
        (linear(4000), 0.999975, 4.246652e-05, 2e-7),
        (sqrt_linear(1000), 0.9985, 1.423e-04, 4e-4),
        (stable_diffusion(), 0.99915, 4.660e-03, 2e-4),
        (sigmoid(1000), 0.99969972, 3.0e-7, 0.02),
    ],
)
def test_ends_of_alphas_cumprod(schedule, first, last, rtol):
    assert schedule.alphas_cumprod[0].item() == pytest.approx(first, abs=1e-8)
    assert schedule.alphas_cumprod[-1].item() == pytest.approx(last, rel=rtol)


@pytest.mark.parametrize(
    ("schedule", "low", "high"),
    [
        (linear(1000), 0.0100005, 157.407),
        (quadratic(1000), 0.0100005, 36.9119),
        (cosine(1000), 0.0064254, 20291.17),
        (cosine(4000), 0.0031410, 81164.6),
        (sqrt_linear(1000), 0.03876, 83.82),
        (stable_diffusion(), 0.02917, 14.61),
    ],
)
def test_range_of_noise_levels(schedule, low, high):
    assert schedule.noise_level[0].item() == pytest.approx(low, rel=4e-4)
    assert schedule.noise_level[-1].item() == pytest.approx(high, rel=4e-4)


@pytest.mark.parametrize(
    ("schedule", "index"),
    [
        (linear(1000), 258),
        (quadratic(1000), 417),
        (cosine(1000), 495),
        (cosine(4000), 1983),
        (linear(4000), 1035),
        (sqrt_linear(1000), 254),
    ],
)
def test_index_where_signal_equals_noise(schedule, index):
    assert schedule.log_snr.abs().argmin().item() == index


@pytest.mark.parametrize(
    ("schedule", "t", "value"),
    [
        (linear(1000), 500, 0.0777967),
        (quadratic(1000), 500, 0.3312746),
        (cosine(1000), 500, 0.4922852),
        (sigmoid(1000), 499, 0.5),
    ],
)
def test_middle_of_alphas_cumprod(schedule, t, value):
    assert schedule.alphas_cumprod[t].item() == pytest.approx(value, abs=5e-8)


def test_cosine_clips_only_the_last_beta():
    betas = cosine(4000).betas
    assert betas[-2].item() == pytest.approx(0.75, abs=1e-6)
    assert betas[-1].item() == 0.999
    assert betas[:-1].max() < 0.999


def test_laplace_log_snr_has_quartiles_of_a_laplace_law():
    """Under uniform u the quartiles of Laplace(mean, scale) are mean +- scale ln 2 (u = 1/4, 3/4 are on the grid)."""
    schedule = laplace(1000, mean=0.3, scale=0.5)
    # alphas_cumprod[i] stands for u = (i+1)/T; A(0) = 1 exactly, so the running product is A(u) itself.
    assert schedule.log_snr[249].item() == pytest.approx(0.3 + 0.5 * math.log(2), abs=1e-9)
    assert schedule.log_snr[499].item() == pytest.approx(0.3, abs=1e-9)
    assert schedule.log_snr[749].item() == pytest.approx(0.3 - 0.5 * math.log(2), abs=1e-9)


def test_edm_table_of_the_discrete_model_is_the_noise_level_of_the_clipped_cosine():
    """EDM's iDDPM preconditioning: u_M = 0, u_{j-1} = sqrt((u_j^2+1)/max(Abar(j-1)/Abar(j), 0.001) - 1)."""
    steps, u = 1000, [0.0]

    def abar(j: int) -> float:
        return math.sin(0.5 * math.pi * j / (steps * 1.008)) ** 2

    for j in range(steps, 0, -1):
        u.append(math.sqrt((u[-1] ** 2 + 1) / max(abar(j - 1) / abar(j), 0.001) - 1))
    table = torch.tensor(u[1:], dtype=torch.float64)  # entry k is u_{M-1-k}, timestep k
    torch.testing.assert_close(table, cosine(steps).noise_level, rtol=1e-11, atol=0)


@pytest.mark.parametrize("make", ALL)
def test_tables_are_float64_and_follow_their_definitions(make):
    schedule = make(num_timesteps=50)
    a, b = schedule.alphas_cumprod, schedule.betas
    before = torch.cat([torch.ones(1, dtype=torch.float64), a[:-1]])
    assert schedule.num_timesteps == 50
    for table in schedule.buffers():
        assert table.dtype == torch.float64 and table.shape == (50,) and table.isfinite().all()
    assert (a.diff() < 0).all()
    torch.testing.assert_close(b, 1 - a / before)
    torch.testing.assert_close(schedule.snr, a / (1 - a))
    torch.testing.assert_close(schedule.log_snr, schedule.snr.log())
    torch.testing.assert_close(schedule.noise_level, schedule.snr**-0.5)
    # Bayes: precisions of q(x_{t-1}|x_0) and of q(x_t|x_{t-1}) add up to the posterior's.
    precision = 1 / (1 - before[1:]) + (1 - b[1:]) / b[1:]
    torch.testing.assert_close(schedule.posterior_variance[1:], 1 / precision)


@pytest.mark.parametrize("make", ALL)
def test_posterior_at_the_first_timestep_is_x0(make):
    schedule = make(num_timesteps=50)
    assert schedule.posterior_mean_coef1[0].item() == pytest.approx(1, abs=1e-12)
    assert schedule.posterior_mean_coef2[0].item() == 0
    assert schedule.posterior_variance[0].item() == 0
    assert schedule.posterior_log_variance_clipped[0] == schedule.posterior_log_variance_clipped[1]


def test_posterior_coefficients_of_the_linear_schedule():
    schedule = linear(1000)
    for t, c1, c2 in [
        (1, 0.545, 0.455),
        (2, 0.389, 0.611),
        (10, 0.136, 0.864),
        (15, 0.0999, 0.900),
        (500, 0.0031, 0.994),
    ]:
        assert schedule.posterior_mean_coef1[t].item() == pytest.approx(c1, abs=6e-4)
        assert schedule.posterior_mean_coef2[t].item() == pytest.approx(c2, abs=3.5e-3)


def test_posterior_mean_reproduces_the_forward_process():
    """E over x_t of C1 x_0 + C2 x_t is sqrt(A_{t-1}) x_0, and its variance plus Vp_t is 1 - A_{t-1}."""
    s = cosine(200)
    a, before = s.alphas_cumprod[1:], s.alphas_cumprod[:-1]
    mean = s.posterior_mean_coef1[1:] + s.posterior_mean_coef2[1:] * a.sqrt()
    torch.testing.assert_close(mean, before.sqrt())
    variance = s.posterior_mean_coef2[1:] ** 2 * (1 - a) + s.posterior_variance[1:]
    torch.testing.assert_close(variance, 1 - before)


def c_t(schedule: NoiseSchedule, variance: torch.Tensor) -> torch.Tensor:
    """b^2 / (2 V a (1-A)): weight of the eps error in the bound, nats per dimension."""
    return schedule.betas**2 / (2 * variance * (1 - schedule.betas) * (1 - schedule.alphas_cumprod))


@pytest.mark.parametrize("make", [linear, quadratic, cosine, sigmoid, laplace])
def test_bound_weight_with_the_small_variance_is_half_the_relative_drop_of_snr(make):
    schedule = make()
    weight = c_t(schedule, schedule.posterior_variance)[1:]
    drop = 0.5 * (schedule.snr[:-1] - schedule.snr[1:]) / schedule.snr[1:]
    torch.testing.assert_close(weight, drop, rtol=1e-8, atol=0)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (linear(), {0: 0.917, 1: 0.273, 10: 0.068, 100: 0.0100, 500: 0.0055, 999: 0.0102}),
        (quadratic(), {0: 0.987, 1: 0.253, 10: 0.051, 100: 0.0093, 500: 0.0043, 999: 0.0102}),
        (cosine(), {0: 0.947, 1: 0.264, 10: 0.062, 100: 0.0094, 500: 0.0031, 999: 500}),
    ],
)
def test_bound_weight_with_the_large_variance(schedule, values):
    variance = schedule.betas.clone()
    variance[0] = schedule.posterior_variance[1]
    for t, value in values.items():
        assert c_t(schedule, variance)[t].item() == pytest.approx(value, rel=0.012)


def test_gathers_are_float32_and_broadcast():
    schedule, t = linear(), torch.tensor([0, 999, 5])
    assert extract(schedule.betas, t, 4).shape == (3, 1, 1, 1)
    assert extract(schedule.betas, t).dtype == torch.float32
    assert schedule.alpha(t).shape == (3,) and schedule.sigma(t, 4).shape == (3, 1, 1, 1)
    torch.testing.assert_close(schedule.alpha(t) ** 2 + schedule.sigma(t) ** 2, torch.ones(3))


def test_perturb_mixes_signal_and_noise():
    schedule, t = linear(), torch.tensor([0, 500])
    x0, eps = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    x_t = schedule.perturb(x0, eps, t)
    for row, index in enumerate(t.tolist()):
        a = schedule.alphas_cumprod[index].item()
        torch.testing.assert_close(x_t[row], a**0.5 * x0[row] + (1 - a) ** 0.5 * eps[row])


def test_tables_are_not_saved_and_keep_float64_when_the_model_is_cast():
    model = nn.Module()
    model.schedule, model.layer = linear(), nn.Linear(2, 2)
    expected = model.schedule.alphas_cumprod.clone()
    assert not any("schedule" in key for key in model.state_dict())
    for cast in (model.half, model.bfloat16, model.float, lambda: model.to(torch.float16)):
        cast()
        assert model.schedule.alphas_cumprod.dtype == torch.float64
    assert model.layer.weight.dtype == torch.float16
    torch.testing.assert_close(model.schedule.alphas_cumprod, expected, rtol=0, atol=0)
    assert model.to("meta").schedule.betas.device.type == "meta"


def test_respaced_schedule_has_the_same_signal_where_it_looks():
    schedule = cosine(1000)
    kept = torch.tensor([0, 10, 500, 999])
    respaced = schedule.respace(kept)
    # Not closer: the last beta is so near 1 that 1 - beta keeps nine digits.
    torch.testing.assert_close(respaced.alphas_cumprod, schedule.alphas_cumprod[kept], rtol=1e-7, atol=0)


def test_a_single_timestep_has_a_finite_log_variance():
    schedule = NoiseSchedule([0.5])
    assert schedule.posterior_log_variance_clipped.item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear(num_timesteps=0), r"^num_timesteps=0 must be an integer in \[1, 1000000\]; "),
        (lambda: linear(num_timesteps=1000.0), r"^num_timesteps=1000.0 must be an integer"),
        (lambda: linear(num_timesteps=20), r"^num_timesteps=20 must be above 20,"),
        (lambda: linear(beta_start=0.5, beta_end=0.02), r"^beta_start=0.5 must lie in \(0, 0.02\); "),
        (lambda: linear(beta_start=-1e-4), r"^beta_start=-0.0001 must lie in"),
        (lambda: quadratic(beta_end=1.0), r"^beta_end=1.0 must lie in \(0, 1\); "),
        (lambda: quadratic(beta_end=float("nan")), r"^beta_end=nan must lie in"),
        (lambda: sqrt_linear(beta_end="abc"), r"^beta_end='abc' must lie in"),
        (lambda: quadratic(num_timesteps=100_000), r"^betas leave alphas_cumprod\[\d+\]=.* lower beta_end"),
        (lambda: cosine(max_beta=1.0), r"^max_beta=1.0 must lie in \(0, 1\); use 0.999"),
        (lambda: cosine(offset=0), r"^offset=0 must lie in \(0, inf\); use 0.008"),
        (lambda: sigmoid(start=3.0, end=-3.0), r"^start=3.0 must lie in \(-inf, -3\); "),
        (lambda: sigmoid(tau=0), r"^tau=0 must lie in"),
        (lambda: laplace(scale=-1.0), r"^scale=-1.0 must lie in"),
        (lambda: NoiseSchedule([0.1, 1.2]), r"^betas\[1\]=1.2 must lie in \(0, 1\); "),
        (lambda: NoiseSchedule([0.1, float("nan")]), r"^betas\[1\]=nan must lie in"),
        (lambda: NoiseSchedule([0.5, 1.0]), r"^betas\[1\]=1.0 must lie in"),
        (lambda: NoiseSchedule([1e-20, 0.1]), r"^betas must each be above 1e-15"),
        (lambda: NoiseSchedule([]), r"^betas of shape \(0,\) must be a list"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
