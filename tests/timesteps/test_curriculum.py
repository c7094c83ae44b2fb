"""CLTS against its closed form."""

from __future__ import annotations

import math

import pytest
import torch

from diffusion_lab.timesteps import CLTS


def relative(sampler: CLTS, step: int) -> torch.Tensor:
    return sampler.probabilities(step) * sampler.num_timesteps


def test_the_literal_distribution_is_almost_flat_at_full_strength():
    p = relative(CLTS(1000, target_steps=100), 100)
    assert p[0].item() == pytest.approx(1.014, abs=6e-4)
    assert p[300].item() == pytest.approx(1.061, abs=6e-4)
    assert p[999].item() == pytest.approx(0.831, abs=6e-4)


def test_it_starts_uniform_and_stays_at_the_target():
    sampler = CLTS(1000, target_steps=100)
    assert torch.allclose(relative(sampler, 0), torch.ones(1000).double())
    assert torch.equal(sampler.probabilities(100), sampler.probabilities(10_000))


def test_half_way_is_the_mean_of_both_distributions():
    sampler = CLTS(1000, target_steps=100, std=0.2)
    middle = 0.5 * (sampler.probabilities(0) + sampler.probabilities(100))
    torch.testing.assert_close(sampler.probabilities(50), middle)


def test_renormalising_afterwards_ramps_more_slowly():
    sampler = CLTS(1000, target_steps=100, outside="renormalize_after")
    t = torch.arange(1000).double()
    density = torch.exp(-0.5 * ((t - 300) / 1000) ** 2) / (1000 * math.sqrt(2 * math.pi))
    mixed = 0.4 / 1000 + 0.6 * density
    torch.testing.assert_close(sampler.probabilities(60), mixed / mixed.sum())
    assert float(density.sum()) == pytest.approx(0.376, abs=1e-3)


def test_clamping_piles_the_outside_up_at_the_ends():
    p = CLTS(1000, target_steps=1, outside="clamp").probabilities(1)
    assert p[0].item() == pytest.approx(0.382, abs=1e-3)
    assert p[-1].item() == pytest.approx(0.242, abs=1e-3)


def test_the_mean_can_move():
    sampler = CLTS(1000, target_steps=100, mean=1.0, std=0.1, mean_end=0.0)
    assert relative(sampler, 50).argmax() == 500
    assert relative(sampler, 100).argmax() == 0


@pytest.mark.parametrize("step", [0, 30, 100])
@pytest.mark.parametrize("outside", ["renormalize", "renormalize_after", "clamp"])
@pytest.mark.parametrize("mean_end", [None, 0.9])
def test_draws_follow_the_probabilities(step, outside, mean_end):
    sampler = CLTS(50, target_steps=100, std=0.2, outside=outside, mean_end=mean_end)
    n = 200_000
    u = (torch.arange(n).double() + 0.5) / n  # a grid: frequencies equal the probabilities up to 1/n per jump
    counts = torch.bincount(sampler.quantile(u, step), minlength=50) / n
    torch.testing.assert_close(counts.double(), sampler.probabilities(step), atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({"target_steps": 0}, "target_steps=0 must"),
        ({"mean": 1.5}, "mean=1.5 must lie in"),
        ({"mean_end": -0.1}, "mean_end=-0.1 must lie in"),
        ({"std": 0.0}, r"std=0.0 must lie in \(0, inf\)"),
        ({"outside": "wrap"}, "outside=wrap must be one of"),
    ],
)
def test_bad_values_are_named(arguments, start):
    with pytest.raises(ValueError, match=f"^{start}"):
        CLTS(**({"num_timesteps": 100, "target_steps": 10} | arguments))
