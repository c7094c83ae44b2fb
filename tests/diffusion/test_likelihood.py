"""The bound against closed forms that share no code with it."""

from __future__ import annotations

import math

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
    NoiseSchedule,
    V,
    bits_per_dim,
    cosine,
    linear,
    prior_term,
    quadratic,
    vlb_terms,
)
from diffusion_lab.diffusion.variance import discretized_log_likelihood


class Answer(nn.Module):
    """A network that always gives one tensor, and counts."""

    def __init__(self, out: torch.Tensor) -> None:
        super().__init__()
        self.out, self.calls = out, 0

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.out[: len(x)]


def levels(*shape: int, seed: int = 0) -> torch.Tensor:
    """Images on the 256 levels of [-1, 1]."""
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed)) / 127.5 - 1


@pytest.mark.parametrize("make", [linear, quadratic, cosine])
@pytest.mark.parametrize("variance", [FixedSmall(), FixedLarge()], ids=lambda v: type(v).__name__)
def test_kl_is_a_weighted_eps_error_plus_a_constant(make, variance):
    """KL_t = b^2/(a (1-A)) e^-lv |eps - eps_hat|^2 / (2 ln 2) + (lv - lq - 1 + e^(lq - lv)) / (2 ln 2), bits/dim."""
    schedule = make()
    t = torch.tensor([1, 2, 10, 100, 500, 990])
    generator = torch.Generator().manual_seed(0)
    x0 = torch.rand(6, 3, 8, 8, generator=generator) * 2 - 1
    eps, out = (torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2))
    got = vlb_terms(Denoiser(Answer(out), schedule, Epsilon(), variance), x0, eps, t)

    b, a_cum = schedule.betas[t], schedule.alphas_cumprod[t]
    before = schedule.alphas_cumprod[t - 1]
    q = b * (1 - before) / (1 - a_cum)
    p = q if isinstance(variance, FixedSmall) else b
    error = (eps - out).double().square().flatten(1).mean(1)
    scale = b**2 / ((1 - b) * (1 - a_cum) * p)
    expected = (scale * error + (p / q).log() - 1 + q / p) / (2 * math.log(2))
    torch.testing.assert_close(got.double(), expected, rtol=3e-5, atol=0)


def test_kl_of_a_perfect_answer_with_the_posterior_variance_is_zero():
    schedule, t = linear(), torch.tensor([1, 500, 999])
    x0, eps = levels(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    denoiser = Denoiser(Answer(x0), schedule, X0(), FixedSmall())
    assert vlb_terms(denoiser, x0, eps, t).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mean", [-1.3, -0.97, 0.0, 0.31, 1.0])
@pytest.mark.parametrize("log_variance", [-9.0, -4.0, 0.0])
def test_decoder_probabilities_of_the_256_levels_sum_to_one(mean, log_variance):
    x = (torch.arange(256, dtype=torch.float64) / 127.5 - 1).reshape(256, 1, 1, 1)
    log_p = discretized_log_likelihood(x, torch.full_like(x, mean), torch.tensor(log_variance).double())
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-9)


def test_decoder_is_the_mass_of_the_normal_law_in_each_level():
    x = levels(64, 1, 1, 1).double()
    mean, std = torch.full_like(x, 0.1), 0.3
    got = discretized_log_likelihood(x, mean, torch.tensor(2 * math.log(std), dtype=torch.float64)).exp()
    normal = torch.distributions.Normal(mean, std)
    upper = torch.where(x > 0.999, 1.0, normal.cdf(x + 1 / 255))
    lower = torch.where(x < -0.999, 0.0, normal.cdf(x - 1 / 255))
    torch.testing.assert_close(got, upper - lower, rtol=0.03, atol=2e-5)  # the tanh form is within 3e-4 of the cdf


def test_the_first_timestep_is_the_decoder():
    schedule = linear()
    x0, eps = levels(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)
    answer = x0 + 0.01
    got = vlb_terms(Denoiser(Answer(answer), schedule, X0(), FixedSmall()), x0, eps, torch.zeros(2, dtype=torch.int64))
    std = math.sqrt(schedule.betas[1].item() * 1e-4 / (1 - schedule.alphas_cumprod[1].item()))
    normal = torch.distributions.Normal(answer.double(), std)
    upper = torch.where(x0 > 0.999, 1.0, normal.cdf(x0.double() + 1 / 255))
    lower = torch.where(x0 < -0.999, 0.0, normal.cdf(x0.double() - 1 / 255))
    expected = -(upper - lower).log2().flatten(1).mean(1)
    torch.testing.assert_close(got.double(), expected, rtol=0.01, atol=0)


def test_prior_is_the_kl_to_the_unit_normal():
    for schedule in (linear(), quadratic(), NoiseSchedule([0.1, 0.3])):
        x0 = levels(3, 1, 4, 4).double()
        a = schedule.alphas_cumprod[-1]
        q = torch.distributions.Normal(a.sqrt() * x0, (1 - a).sqrt())
        unit = torch.distributions.Normal(torch.zeros_like(x0), 1.0)
        expected = torch.distributions.kl_divergence(q, unit).flatten(1).mean(1) / math.log(2)
        torch.testing.assert_close(prior_term(x0, schedule).double(), expected, rtol=1e-6, atol=0)


def test_prior_of_the_linear_schedule_is_half_the_remaining_signal():
    """-A - ln(1-A) is negligible at A = 4e-5: L_T = A x0^2 / (2 ln 2) to four digits."""
    value = prior_term(torch.ones(1, 3, 2, 2), linear()).item()
    assert value == pytest.approx(4.035829765e-05 / (2 * math.log(2)), rel=1e-4)


def test_bits_per_dim_adds_up_its_terms_with_one_call_each():
    schedule, noises = NoiseSchedule(torch.linspace(0.01, 0.3, 7)), {}
    x0 = levels(2, 1, 4, 4)
    network = Answer(torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(3)))
    denoiser = Denoiser(network, schedule, V(), LearnedRange())

    def noise(k, like):
        noises[k] = torch.randn(like.shape, generator=torch.Generator().manual_seed(k))
        return noises[k]

    bound = bits_per_dim(denoiser, x0, noise)
    assert network.calls == 7 and sorted(noises) == list(range(7))
    assert bound.terms.shape == (2, 7)
    torch.testing.assert_close(bound.total, bound.terms.sum(1) + bound.prior)
    for t in range(7):  # k = 0 is the noisiest
        steps = torch.full((2,), t)
        torch.testing.assert_close(bound.terms[:, t], vlb_terms(denoiser, x0, noises[6 - t], steps, clip=True))


def test_bound_of_the_right_model_is_the_entropy_of_the_data_and_the_decoder_width():
    """x0 uniform on {-1, 1} holds 1 bit/dim. With x0_hat = E[x0|x_t] = tanh(sqrt(A) x_t/(1-A)) the terms of t >= 1
    come close to it; the decoder adds the mass that its Gaussian puts beyond the level next to the right one.
    """

    class TwoValues(nn.Module):
        def forward(self, x, t):
            a = schedule.alphas_cumprod[t].float().reshape(-1, 1, 1, 1)
            return torch.tanh(a.sqrt() * x / (1 - a))

    schedule = linear(200)
    x0 = torch.randint(0, 2, (64, 1, 8, 8), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    generator = torch.Generator().manual_seed(1)
    bound = bits_per_dim(
        Denoiser(TwoValues(), schedule, X0(), FixedSmall()),
        x0,
        lambda k, like: torch.randn(like.shape, generator=generator),
    )
    assert 0.98 < (bound.total - bound.terms[:, 0]).mean().item() < 1.06
    std = schedule.posterior_variance[1].sqrt()
    inside = torch.distributions.Normal(0.0, std).cdf(torch.tensor(1 / 255))
    torch.testing.assert_close(bound.terms[:, 0].double().mean(), -inside.double().log2(), rtol=1e-3, atol=0)


def test_clip_enters_the_bound():
    schedule, t = linear(), torch.tensor([300, 300])
    x0, eps = levels(2, 1, 4, 4), torch.randn(2, 1, 4, 4)
    denoiser = Denoiser(Answer(torch.full((2, 1, 4, 4), 5.0)), schedule, X0(), FixedSmall())
    clipped = Denoiser(Answer(torch.ones(2, 1, 4, 4)), schedule, X0(), FixedSmall())
    assert torch.equal(vlb_terms(denoiser, x0, eps, t, clip=True), vlb_terms(clipped, x0, eps, t))
    assert (vlb_terms(denoiser, x0, eps, t) > vlb_terms(clipped, x0, eps, t)).all()
