"""float64 in gives float64 out, so the maths can be held to 1e-12; float32 and half precisions give float32.

The formulas are written out again below with NumPy, from the betas alone.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    Epsilon,
    FixedLarge,
    FixedSmall,
    LearnedRange,
    V,
    bits_per_dim,
    cosine,
    linear,
    quadratic,
    vlb_terms,
)

T = 1000
SCHEDULES = {"linear": linear, "quadratic": quadratic, "cosine": cosine}
STEPS = torch.tensor([0, 1, 2, 17, 300, 500, 998, 999])
TIGHT = {"rtol": 1e-12, "atol": 1e-12}


class Answers(nn.Module):
    """A network that returns the tensor it was built with."""

    def __init__(self, out: torch.Tensor) -> None:
        super().__init__()
        self.out = out

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        assert x.dtype == self.out.dtype
        return self.out


class Tables:
    """A, SNR and the posterior's coefficients in NumPy, shaped to broadcast."""

    def __init__(self, schedule) -> None:
        b = schedule.betas.numpy()
        a = np.cumprod(1 - b)
        before = np.concatenate([[1.0], a[:-1]])
        small = b * (1 - before) / (1 - a)
        small[0] = small[1]

        def at(table):
            return table[STEPS.numpy()][:, None, None, None]

        self.a, self.b, self.small = at(a), at(b), at(small)
        self.c1 = at(b * np.sqrt(before) / (1 - a))
        self.c2 = at(np.sqrt(1 - b) * (1 - before) / (1 - a))


def numbers(*names: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(len(STEPS), 2, 3, 3, generator=generator, dtype=torch.float64) for _ in names]


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return SCHEDULES[request.param](T)


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()], ids=lambda p: type(p).__name__)
def test_estimates_and_losses(schedule, prediction):
    x0, eps, out = numbers("x0", "eps", "out")
    tables = Tables(schedule)
    alpha, sigma = np.sqrt(tables.a), np.sqrt(1 - tables.a)
    x_t = alpha * x0.numpy() + sigma * eps.numpy()
    y = out.numpy()
    expected = {
        "Epsilon": ((x_t - sigma * y) / alpha, y, eps.numpy()),
        "X0": (y, (x_t - alpha * y) / sigma, x0.numpy()),
        "V": (alpha * x_t - sigma * y, sigma * x_t + alpha * y, alpha * eps.numpy() - sigma * x0.numpy()),
    }[type(prediction).__name__]
    denoiser = Denoiser(Answers(out), schedule, prediction, FixedLarge())
    noisy = schedule.perturb(x0, eps, STEPS)
    np.testing.assert_allclose(noisy.numpy(), x_t, rtol=1e-12, atol=1e-14)
    found = denoiser.estimate(noisy, STEPS)
    assert found.x0.dtype == found.eps.dtype == torch.float64
    # Relative to the largest number of the row: a difference of two is as exact as they are, and 1/alpha is 2e4.
    for ours, theirs in zip(found, expected, strict=False):
        scale = np.abs(theirs).max(axis=(1, 2, 3), keepdims=True) + np.abs(x_t / alpha).max(
            axis=(1, 2, 3), keepdims=True
        )
        assert (np.abs(ours.numpy() - theirs) / scale).max() < 1e-12
    native = denoiser.loss(x0, eps, STEPS)
    np.testing.assert_allclose(native.native.numpy(), ((y - expected[2]) ** 2).mean((1, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(native.snr.numpy(), (tables.a / (1 - tables.a)).ravel(), rtol=1e-12)


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()], ids=lambda p: type(p).__name__)
def test_the_true_answer_gives_back_both_parts(schedule, prediction):
    x0, eps = numbers("x0", "eps")
    alpha, sigma = schedule.alpha(STEPS, 4, torch.float64), schedule.sigma(STEPS, 4, torch.float64)
    denoiser = Denoiser(Answers(prediction.target(x0, eps, alpha, sigma)), schedule, prediction, FixedLarge())
    found = denoiser.estimate(schedule.perturb(x0, eps, STEPS), STEPS)
    # What is divided by alpha (or sigma) has that much of the rounding: 2e4 at the end of the cosine schedule.
    assert float(((found.x0 - x0) * alpha).abs().max()) < 1e-12
    assert float(((found.eps - eps) * sigma).abs().max()) < 1e-12
    assert float(denoiser.loss(x0, eps, STEPS).native.max()) < 1e-24


@pytest.mark.parametrize("variance", [FixedSmall(), FixedLarge(), LearnedRange()], ids=lambda v: type(v).__name__)
def test_reverse_steps_and_terms_of_the_bound(schedule, variance):
    """L_t against the general KL of two Gaussians with their own means, of which `posterior_kl` cancels a part."""
    x0, eps, out, extra = numbers("x0", "eps", "out", "extra")
    x0 = torch.round((x0.clamp(-1, 1) + 1) * 127.5) / 127.5 - 1
    tables = Tables(schedule)
    answer = torch.cat([out, extra], 1) if variance.channels else out
    denoiser = Denoiser(Answers(answer), schedule, X0(), variance)
    x_t = schedule.perturb(x0, eps, STEPS)
    found = denoiser.reverse(x_t, STEPS)
    mean = tables.c1 * out.numpy() + tables.c2 * x_t.numpy()
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-12, atol=1e-12)
    first = (STEPS.numpy() == 0)[:, None, None, None]
    large = np.where(first, tables.small, tables.b)
    f = (extra.numpy() + 1) / 2
    log_v = {
        "FixedSmall": np.log(tables.small) + 0 * mean,
        "FixedLarge": np.log(large) + 0 * mean,
        "LearnedRange": f * np.log(tables.b) + (1 - f) * np.log(tables.small),
    }[type(variance).__name__]
    ours = found.log_variance.numpy() + 0 * mean
    np.testing.assert_allclose(ours, log_v, rtol=1e-12, atol=1e-12)

    true = tables.c1 * x0.numpy() + tables.c2 * x_t.numpy()
    log_q = np.log(tables.small)
    kl = 0.5 * (-1 + log_v - log_q + np.exp(log_q - log_v) + (true - mean) ** 2 * np.exp(-log_v))
    terms = vlb_terms(denoiser, x0, eps, STEPS)
    assert terms.dtype == torch.float64
    expected = kl.mean((1, 2, 3)) / math.log(2)
    # 1 - 1 and ln V - ln Vp leave rounding of 1e-16 of a logarithm of 20.
    np.testing.assert_allclose(terms.numpy()[1:], expected[1:], rtol=1e-12, atol=1e-13)
    scale = np.exp(-0.5 * log_v[0])

    def cdf(z):
        return 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))

    image = x0.numpy()[0]
    upper = np.where(image > 0.999, 1.0, cdf((image - out.numpy()[0] + 1 / 255) * scale))
    lower = np.where(image < -0.999, 0.0, cdf((image - out.numpy()[0] - 1 / 255) * scale))
    decoder = -np.log(np.maximum(upper - lower, 1e-12)).mean() / math.log(2)
    assert float(terms[0]) == pytest.approx(decoder, rel=1e-12)


def test_the_whole_bound_is_the_sum_of_its_parts():
    schedule = cosine(20)
    x0, out = (value[:2] for value in numbers("x0", "out"))
    x0 = torch.round((x0.clamp(-1, 1) + 1) * 127.5) / 127.5 - 1
    denoiser = Denoiser(Answers(out), schedule, X0(), FixedLarge())
    noise = [torch.randn(x0.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(20)]
    bound = bits_per_dim(denoiser, x0, lambda k, like: noise[k])
    one = torch.ones(2, dtype=torch.int64)
    terms = [vlb_terms(denoiser, x0, noise[19 - t], one * t, clip=True) for t in range(20)]
    a = float(np.cumprod(1 - schedule.betas.numpy())[-1])
    prior = 0.5 * (a * x0.square().mean((1, 2, 3)) - a - math.log1p(-a)) / math.log(2)
    torch.testing.assert_close(bound.total, torch.stack(terms).sum(0) + prior, **TIGHT)
    assert bound.total.dtype == bound.prior.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_precisions_give_float32(dtype):
    x0, eps, out = (value.to(dtype) for value in numbers("x0", "eps", "out"))
    denoiser = Denoiser(Answers(out.to(dtype)), linear(T), V(), FixedLarge())
    found = denoiser.reverse(x0, STEPS)
    assert found.mean.dtype == found.x0.dtype == found.log_variance.dtype == torch.float32
    assert linear(T).alpha(STEPS, 4).dtype == torch.float32
