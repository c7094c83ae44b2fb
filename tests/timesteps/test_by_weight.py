"""Timesteps in proportion to the weights of the loss: the same objective, with one weight for all draws."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import P2, Epsilon, MinSNR, Unit, V, cosine, linear, native_scales
from diffusion_lab.testing import check_sampler
from diffusion_lab.timesteps import ByWeight, Uniform
from experiments.objective.split import Split

T = torch.arange(200)


def native(schedule, prediction, weighting) -> torch.Tensor:
    return weighting.native_weight(schedule.snr, native_scales(schedule, prediction), 0).double()


@pytest.mark.parametrize("schedule", [cosine(200), linear(200)])
@pytest.mark.parametrize(("prediction", "weighting"), [(V(), MinSNR()), (V(), P2()), (Epsilon(), MinSNR())])
def test_the_objective_is_that_of_uniform_timesteps_and_all_draws_weigh_the_same(
    schedule, prediction, weighting
) -> None:
    sampler, w = ByWeight(schedule, prediction, weighting), native(schedule, prediction, weighting)
    losses = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = sampler.probabilities(0) * sampler.weight(T, 0).double() * w
    uniform = Uniform(200).probabilities(0) * w
    assert float((drawn * losses).sum()) == pytest.approx(float((uniform * losses).sum()), rel=1e-5)
    weights = sampler.weight(T, 0).double() * w
    torch.testing.assert_close(weights, torch.full_like(weights, float(w.mean())), rtol=1e-5, atol=0)
    assert float(w.max() / w.min()) > 2  # which uniform timesteps do not


@pytest.mark.parametrize(("name", "weighting"), [("min_snr", MinSNR()), ("p2", P2())])
def test_it_is_the_division_that_the_study_measured(name: str, weighting) -> None:
    schedule = cosine(1000)
    measured = Split(schedule, name, "p", [0, 999], [1.0, 1.0]).probabilities(0)
    torch.testing.assert_close(ByWeight(schedule, V(), weighting).probabilities(0), measured, rtol=1e-6, atol=1e-15)


def test_without_a_weighting_it_is_uniform() -> None:
    torch.testing.assert_close(ByWeight(cosine(50), V(), Unit()).probabilities(0), torch.full((50,), 0.02).double())


def test_a_weight_of_zero_is_refused() -> None:
    class Nothing(Unit):
        def native_weight(self, snr, scale, step):
            return torch.where(torch.arange(len(snr)) == 3, 0.0, 1.0)

    with pytest.raises(ValueError, match="t=3"):
        ByWeight(cosine(50), V(), Nothing())


def test_it_draws_what_it_says_and_resumes() -> None:
    check_sampler(lambda: ByWeight(cosine(100), V(), MinSNR()), num_timesteps=100)
