"""Guidance by a weaker model, against its formula."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    EDMPrediction,
    EDMScale,
    Epsilon,
    LearnedRange,
    LogNoise,
    Prediction,
    V,
    cosine,
    linear,
)
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.solvers import DDIM, DDPM, Autoguided, Euler, Guided, Heun, network_calls
from tests.solvers.gaussian import SeededNoise, best_denoiser, no_noise


def start(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 1, 2, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()], ids=lambda p: type(p).__name__)
def test_the_estimate_is_extrapolated_from_the_weak_one(prediction: Prediction) -> None:
    """D = D_weak + w (D - D_weak), in the space of the estimate whatever the network predicts."""
    good, weak = (best_denoiser(cosine(40), prediction, mean=mean, std=std) for mean, std in ((0.3, 0.5), (0.1, 0.8)))
    guided = Autoguided(DDIM(8), weak, 2.5).model(good)
    for t in (0, 20, 39):
        x, at = start(), torch.full((3,), t)
        d, d_weak = good.estimate(x, at), weak.estimate(x, at)
        found = guided.estimate(x, at)
        torch.testing.assert_close(found.x0, d_weak.x0 + 2.5 * (d.x0 - d_weak.x0), atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(found.eps, d_weak.eps + 2.5 * (d.eps - d_weak.eps), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("base", [DDIM(6, clip=False), DDPM(6, clip=False), Heun(4)], ids=lambda s: s.describe())
def test_scale_one_is_the_model_and_scale_zero_the_weak_one(base) -> None:
    good, weak = (best_denoiser(cosine(40), V(), mean=mean) for mean in (0.3, -0.2))
    x = start()
    for scale, alone in ((1.0, good), (0.0, weak)):
        found = Autoguided(base, weak, scale)(good, x, noise=SeededNoise())
        torch.testing.assert_close(found, base(alone, x, noise=SeededNoise()), atol=1e-5, rtol=1e-5)


def test_samples_of_a_gaussian_move_away_from_the_weak_model() -> None:
    """Models of point-like data at m and m_weak: the estimate is w m + (1 - w) m_weak at every noise level."""
    good, weak = (best_denoiser(cosine(400), X0(), mean=mean, std=1e-6) for mean in (0.3, 0.1))
    found = Autoguided(Euler(20, clip=False), weak, 2.0)(good, start(), noise=no_noise)
    torch.testing.assert_close(found, torch.full_like(found, 0.5), atol=1e-4, rtol=0)


class Shrink(nn.Module):
    def forward(self, x, t, label):
        return x.repeat(1, 2, 1, 1) * (0.2 + 0.1 * label.to(x)[:, None, None, None])


def test_labels_reach_both_and_the_variance_is_that_of_the_model() -> None:
    good = Denoiser(Shrink(), linear(40), V(), LearnedRange(), null_label=3)
    inner = Labelled(best_denoiser(linear(40), V()).network)
    weak = Denoiser(inner, linear(40), V())
    x, t, label = start(), torch.full((3,), 20), torch.tensor([0, 1, 2])
    guided = Autoguided(DDPM(6), weak, 3.0).model(good).reverse(x, t, label=label)
    assert torch.equal(guided.log_variance, good.reverse(x, t, label=label).log_variance)
    assert torch.equal(inner.label, label)
    both = Guided(Autoguided(DDPM(6), weak, 3.0), 2.0)
    assert both(good, x, noise=SeededNoise(), label=label).isfinite().all()


class Labelled(nn.Module):
    """A network without labels that is given some."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.label = network, torch.empty(0)

    def forward(self, x, t, label):
        self.label = label
        return self.network(x, t)


def test_a_weak_model_differs_in_its_network_alone() -> None:
    good = best_denoiser(cosine(40), V())
    for word, weak in {
        "schedule": best_denoiser(linear(40), V()),
        "prediction": best_denoiser(cosine(40), X0()),
        "preconditioning": Denoiser(nn.Identity(), cosine(40), V(), preconditioning=EDMScale()),
        "time": Denoiser(nn.Identity(), cosine(40), V(), time=LogNoise()),
    }.items():
        with pytest.raises(
            ValueError, match=f"^weak must have the {word} of the model that it guides, and has another"
        ):
            Autoguided(DDIM(6), weak).check_model(good)
    edm, other = (Denoiser(nn.Identity(), cosine(40), EDMPrediction(sigma)) for sigma in (0.5, 0.4))
    with pytest.raises(ValueError, match="the prediction of the model"):
        Guided(Autoguided(DDIM(6), other)).check_model(edm)
    Autoguided(DDIM(6), best_denoiser(cosine(40), V(), mean=0.9)).check_model(good)


def test_its_calls_are_counted_with_those_of_the_weak_model() -> None:
    good, run = best_denoiser(cosine(40), V()), TrainedRun("somewhere", "0123456789ab")
    assert network_calls(Autoguided(DDIM(6), run), good) == 12
    assert network_calls(Guided(Autoguided(Euler(6), run)), good) == 6 * (2 + 1)


def test_its_name_has_the_weights_of_the_weak_run() -> None:
    run = TrainedRun("somewhere", "0123456789ab")
    assert Autoguided(DDIM(50), run).describe() == "ddim-50-eta0-autoguided2-0123456789ab"
    assert Autoguided(DDIM(50), run).with_steps(7).describe() == "ddim-7-eta0-autoguided2-0123456789ab"


def test_a_run_that_was_not_loaded_or_does_not_exist_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="^run=somewhere must be loaded first"):
        Autoguided(DDIM(6), TrainedRun("somewhere", "0123456789ab")).model(best_denoiser(cosine(40), V()))
    for run in (None, "nowhere"):
        with pytest.raises(ValueError, match="^run=(null|nowhere) must be the folder of a trained run"):
            TrainedRun(run, None)


def test_a_weak_model_without_label_dropout_gives_no_samples_without_a_label() -> None:
    good, weak = best_denoiser(cosine(40), V()), best_denoiser(cosine(40), V(), mean=0.9)
    good.null_label = 10
    with pytest.raises(ValueError, match="^weak must be trained with label dropout, .* because base=Guided asks both"):
        Autoguided(Guided(DDIM(6)), weak).check_model(good)
    Guided(Autoguided(DDIM(6), weak)).check_model(good)  # there the weak model is given the label alone
    weak.null_label = 10
    Autoguided(Guided(DDIM(6)), weak).check_model(good)
    good.null_label = None  # of which the data's own check speaks
    Autoguided(Guided(DDIM(6)), weak).check_model(good)


def test_the_weak_network_runs_in_eval_mode_and_gets_its_own_mode_back() -> None:
    good, weak = best_denoiser(cosine(40), V()), best_denoiser(cosine(40), V(), mean=0.9)
    weak.network = nn.Sequential(nn.Dropout(0.5))
    seen = list[bool]()
    weak.network.forward = lambda x, t: seen.append(weak.network.training) or x
    weak.train()
    Autoguided(DDIM(3), weak)(good, torch.zeros(1, 1, 2, 2), noise=lambda k, like: like)
    assert seen == [False] * 3 and weak.training and weak.network[0].training
