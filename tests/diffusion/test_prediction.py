"""Conversions between predictions, and the exact relations between their losses."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import X0, Epsilon, V, cosine, extract

PREDICTIONS = [Epsilon(), X0(), V()]


@pytest.fixture
def noised():
    schedule, t = cosine(1000), torch.tensor([0, 3, 100, 500, 900, 990])
    generator = torch.Generator().manual_seed(0)
    x0 = torch.rand(6, 3, 4, 4, generator=generator) * 2 - 1
    eps = torch.randn(6, 3, 4, 4, generator=generator)
    # float64, so that the identities are tested and not the rounding of 1/alpha and 1/sigma.
    a = schedule.alphas_cumprod[t].reshape(-1, 1, 1, 1)
    alpha, sigma, x0, eps = a.sqrt(), (1 - a).sqrt(), x0.double(), eps.double()
    return x0, eps, alpha, sigma, alpha * x0 + sigma * eps, schedule.snr[t]


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=lambda p: type(p).__name__)
def test_the_target_is_an_answer_without_error(prediction, noised):
    x0, eps, alpha, sigma, x_t, _ = noised
    answer = prediction.target(x0, eps, alpha, sigma)
    estimate = prediction.estimate(answer, x_t, alpha, sigma)
    torch.testing.assert_close(estimate.x0, x0, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(estimate.eps, eps, rtol=1e-9, atol=1e-9)
    assert prediction.loss(answer, x0, eps, alpha, sigma).abs().max() == 0


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=lambda p: type(p).__name__)
def test_any_answer_gives_estimates_that_make_up_x_t(prediction, noised):
    _, _, alpha, sigma, x_t, _ = noised
    x0, eps = prediction.estimate(torch.randn_like(x_t), x_t, alpha, sigma)
    torch.testing.assert_close(alpha * x0 + sigma * eps, x_t)


def losses(noised):
    """(B,) losses of one and the same wrong answer in the spaces eps, x0, v."""
    x0, eps, alpha, sigma, x_t, snr = noised
    wrong = x0 + 0.1 * torch.randn(x0.shape, generator=torch.Generator().manual_seed(1), dtype=x0.dtype)
    wrong_eps = (x_t - alpha * wrong) / sigma
    answers = [wrong_eps, wrong, alpha * wrong_eps - sigma * wrong]
    return [p.loss(out, x0, eps, alpha, sigma) for p, out in zip(PREDICTIONS, answers, strict=True)], snr


def test_losses_of_one_answer_are_tied(noised):
    (e_eps, e_x0, e_v), snr = losses(noised)
    torch.testing.assert_close(e_eps, snr * e_x0)
    torch.testing.assert_close(e_v, e_eps + e_x0)
    torch.testing.assert_close(e_v, (1 + snr) * e_x0)


def test_native_scale_is_native_loss_over_x0_loss(noised):
    (e_eps, e_x0, e_v), snr = losses(noised)
    for prediction, loss in zip(PREDICTIONS, (e_eps, e_x0, e_v), strict=True):
        torch.testing.assert_close(prediction.native_scale(snr), loss / e_x0)


def test_loss_is_the_mean_over_each_row(noised):
    x0, eps, alpha, sigma, _, _ = noised
    out = torch.zeros_like(x0)
    expected = torch.stack([row.square().mean() for row in eps])
    torch.testing.assert_close(Epsilon().loss(out, x0, eps, alpha, sigma), expected)


def test_float32_gathers_reproduce_the_image_at_moderate_noise():
    schedule, t = cosine(1000), torch.tensor([0, 250, 500, 750])
    x0, eps = torch.rand(4, 1, 4, 4) * 2 - 1, torch.randn(4, 1, 4, 4)
    x_t = schedule.perturb(x0, eps, t)
    assert extract(schedule.snr, t).dtype == torch.float32
    for p in PREDICTIONS:
        alpha, sigma = schedule.alpha(t, 4), schedule.sigma(t, 4)
        estimate = p.estimate(p.target(x0, eps, alpha, sigma), x_t, alpha, sigma)
        torch.testing.assert_close(estimate.x0, x0, rtol=0, atol=1e-5)
