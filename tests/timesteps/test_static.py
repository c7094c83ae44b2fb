"""Fixed distributions against closed forms."""

import math

import pytest
import torch

from diffusion_lab.timesteps import FixedSampler, LogitNormal, Uniform
from diffusion_lab.timesteps.base import invert


def test_uniform_quantile_is_the_floor():
    sampler = Uniform(10)
    u = torch.tensor([0.0, 0.0999, 0.1, 0.55, 0.9999999], dtype=torch.float64)
    assert sampler.quantile(u, 0).tolist() == [0, 0, 1, 5, 9]
    assert torch.allclose(sampler.probabilities(0), torch.full((10,), 0.1, dtype=torch.float64))


def test_logit_normal_masses_are_integrals_of_its_density():
    """P(t) = integral over the rounding interval of phi(logit u)/(u(1-u)), by a fine midpoint rule."""
    steps = 11
    u = (torch.arange(400_000, dtype=torch.float64) + 0.5) / 400_000
    density = torch.exp(-(torch.logit(u) ** 2) / 2) / math.sqrt(2 * math.pi) / (u * (1 - u))
    t = torch.round(u * (steps - 1)).long()
    masses = torch.zeros(steps, dtype=torch.float64).index_add_(0, t, density / len(u))
    assert torch.allclose(LogitNormal(steps).probabilities(0), masses, atol=1e-6)


def test_logit_normal_is_symmetric_and_keeps_tiny_tails():
    p = LogitNormal(1000).probabilities(0)
    assert torch.allclose(p, p.flip(0), rtol=1e-6, atol=0)
    # P(t=0) = Phi(logit(0.5/999)) with logit = ln(0.5/998.5) = -7.5994; Phi(-7.5994) = 1.488e-14
    assert float(p[0]) == pytest.approx(0.5 * math.erfc(7.599401 / math.sqrt(2)), rel=1e-4)


def test_the_far_tail_is_neither_lost_nor_rejected():
    """P(t=0) of 4000 timesteps is Phi(ln(0.5/3998.5)) = Phi(-8.99)."""
    exact = 0.5 * math.erfc(-math.log(0.5 / 3998.5) / math.sqrt(2))
    sampler = LogitNormal(4000, reweight=True)
    assert float(sampler.probabilities(0)[0]) == pytest.approx(exact, rel=1e-6) and 1e-19 < exact < 2e-19
    assert float(sampler.weight(torch.tensor([0]), 0)) == pytest.approx(1 / (4000 * exact), rel=1e-5)


def test_a_weight_beyond_float32_is_rejected():
    with pytest.raises(ValueError, match=r"^reweight=True must not divide .* next to it, which t=1 has \(1\.0e-42\)"):
        Given(torch.tensor([1.0, 1e-42], dtype=torch.float64), reweight=True)


def test_logit_normal_mean_moves_the_mass_to_noisier_timesteps():
    t = torch.arange(1000, dtype=torch.float64)
    low, high = (float((LogitNormal(1000, mean=m).probabilities(0) * t).sum()) for m in (-1.0, 1.0))
    assert low < 350 < 650 < high


def test_invert_never_draws_an_impossible_timestep():
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    u = torch.tensor([0.0, 0.49999, 0.5, 1 - 1e-16], dtype=torch.float64)
    assert invert(p.cumsum(0), u).tolist() == [1, 1, 3, 3]


class Given(FixedSampler):
    """A distribution from a list."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Uniform(0), ("num_timesteps=0", ">= 1")),
        (lambda: LogitNormal(100, std=0.0), ("std=0.0", "(0, inf)")),
        (lambda: LogitNormal(1), ("num_timesteps=1", ">= 2")),
        (lambda: Given(torch.tensor([0.5, -0.1, 0.6])), ("probabilities[1]=-0.1", ">= 0")),
        (lambda: Given(torch.tensor([0.5, float("nan")])), ("probabilities[1]=nan", "finite")),
        (lambda: Given(torch.zeros(3)), ("all zero", "positive sum")),
        (lambda: Given(torch.tensor([1.0, 0.0]), reweight=True), ("reweight=True", "t=1")),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert all(word in str(error.value) for word in words), str(error.value)
