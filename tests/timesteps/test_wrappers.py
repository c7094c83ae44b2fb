"""Mixture, antithetic and low-discrepancy draws."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import linear
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Antithetic, Context, LowDiscrepancy, Mixture, Position, Power, SpeeD, Uniform


def draw(sampler, rows: int, step: int = 0) -> torch.Tensor:
    return sampler.draw(torch.zeros(rows, 1, 2, 2), Context(Position(step), Streams(0))).t


def test_low_discrepancy_puts_exactly_one_draw_into_each_of_G_equal_ranges():
    t = draw(LowDiscrepancy(Uniform(1000)), 100)
    assert torch.bincount(t // 10, minlength=100).tolist() == [1] * 100


def test_low_discrepancy_moves_from_step_to_step():
    sampler = LowDiscrepancy(Uniform(1000))
    assert not torch.equal(draw(sampler, 50, 0).sort().values, draw(sampler, 50, 1).sort().values)


@pytest.mark.parametrize("rows", [64, 7, 1])
def test_antithetic_pairs_are_opposite(rows):
    t = draw(Antithetic(Uniform(1000)), rows)
    half = (rows + 1) // 2
    assert torch.equal(t[half:], 999 - t[: rows - half])


def test_antithetic_pairs_of_a_skewed_distribution_stay_in_its_quantiles():
    base = Power(1000, power=2.0)
    t = draw(Antithetic(base), 64)
    cdf = base.probabilities(0).cumsum(0)
    # P(T <= t) of a pair adds to 1, up to the mass of one timestep.
    torch.testing.assert_close(cdf[t[:32]] + cdf[t[32:]], torch.ones(32).double(), atol=0.005, rtol=0)


def test_a_mixture_is_the_weighted_sum_of_both_distributions():
    base = Power(100, power=3.0)
    sampler = Mixture(base, uniform=0.25)
    torch.testing.assert_close(sampler.probabilities(0), 0.25 / 100 + 0.75 * base.probabilities(0))
    u = (torch.arange(100_000).double() + 0.5) / 100_000
    counts = torch.bincount(sampler.quantile(u, 0), minlength=100).double() / 100_000
    torch.testing.assert_close(counts, sampler.probabilities(0), atol=3e-5, rtol=0)


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_a_mixture_may_be_all_of_one(q):
    base = Power(10, power=3.0)
    p = Mixture(base, uniform=q).probabilities(0)
    torch.testing.assert_close(p, base.probabilities(0) if q == 0 else torch.full((10,), 0.1).double())
    assert int(draw(Mixture(base, uniform=q), 1000).max()) == 9


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: Mixture(Uniform(5), uniform=1.5), "uniform=1.5 must lie in"),
        (lambda: Mixture(SpeeD(linear())), "base=SpeeD must draw by"),
        (lambda: Antithetic(SpeeD(linear())), "base=SpeeD must draw by"),
        (lambda: Power(5, power=float("inf")), "power=inf must lie in"),
    ],
)
def test_bad_values_are_named(make, start):
    with pytest.raises(ValueError, match=f"^{start}"):
        make()
