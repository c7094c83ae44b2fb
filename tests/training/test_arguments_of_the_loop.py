"""What a loop of one's own gives wrongly is one sentence with the argument, its value, what is allowed and the cure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from diffusion_lab.callbacks import TimestepSampling
from diffusion_lab.diffusion import Epsilon, MinSNR, Uncertainty, cosine
from diffusion_lab.solvers import DDIM, Guided
from diffusion_lab.timesteps import LogitNormal, LossSecondMoment, Mixture, Stratified, Uniform
from diffusion_lab.training import LoopSampler, NotFinite

IMAGES = torch.zeros(4, 1, 2, 2)


def drawn() -> LoopSampler:
    timesteps = LoopSampler(Uniform(8))
    timesteps.draw(IMAGES)
    return timesteps


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: Stratified(1000), "base=1000 must be an object of a TimestepSampler; use one such as LogitNormal"),
    (lambda: Mixture(Uniform), "base=the class Uniform must be"),
    (lambda: LoopSampler(LogitNormal), "sampler=the class LogitNormal must be"),
    (lambda: LoopSampler("logit_normal"), "sampler='logit_normal' must be"),
    (lambda: TimestepSampling("logit_normal"), "sampler='logit_normal' must be"),
    (lambda: Guided(DDIM), "base=the class DDIM must be an object of a Solver; use one such as DDIM"),
    (lambda: LoopSampler(Uniform(8)).draw(16), r"x0=16 must be the clean images of the rows, \(b,C,H,W\); use draw"),
    (lambda: LoopSampler(Uniform(8)).draw(torch.zeros(16)), r"x0=of shape \(16,\) must be"),
    (
        lambda: drawn().observe(0.5),
        "loss=0.5 must have a value for each of the 4 rows of 1 of 1 draws; call observe once",
    ),
    (lambda: drawn().observe(torch.zeros(4), torch.zeros(())), r"objective of shape \(\) must have a value for each"),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_a_wrong_argument_is_named_where_it_is_given(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}"):
        call()


@pytest.mark.parametrize("weighting", [MinSNR(5.0), Uncertainty(MinSNR(5.0))])
def test_a_loss_without_its_parts_is_told_how_to_give_them(weighting: MinSNR) -> None:
    snr = cosine(8).snr.float()
    scale, t, loss = Epsilon().native_scale(snr), torch.arange(4), torch.ones(4)
    assert weighting(loss[:, None], snr[t], scale[t, None], 0).shape == (4,)
    for wrong in (
        (loss, snr[t], scale[t]),
        (loss[:, None], snr[t], scale[t]),
        (loss[:, None], snr[t, None], scale[t, None]),
    ):
        with pytest.raises(ValueError, match=r"native_loss, snr, scale of shapes .* use weighting\(loss\[:, None\]"):
            weighting(*wrong, 0)


@pytest.mark.parametrize("sampler", [Uniform(8), LossSecondMoment(8)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_loop_before_the_sampler_learns_from_it(sampler, bad: float) -> None:
    timesteps = LoopSampler(sampler)
    for _ in range(2):
        timesteps.draw(IMAGES)
        timesteps.observe(torch.ones(4))
    before = timesteps.state_dict()["sampler"]
    timesteps.draw(IMAGES)
    with pytest.raises(NotFinite, match="the loss is not finite at optimizer step 3, and the sampler would learn"):
        timesteps.observe(torch.tensor([1.0, bad, 1.0, 1.0]))
    assert all(torch.equal(value, before[key]) for key, value in sampler.state_dict().items())


def test_a_gpu_is_read_every_few_steps_and_before_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    timesteps, read = LoopSampler(Uniform(8)), []
    monkeypatch.setattr("diffusion_lab.training.own_loop._steps_between_looks", lambda device: 20)
    check = timesteps._check_finite
    monkeypatch.setattr(timesteps, "_check_finite", lambda: (read.append(timesteps.step), check()))
    for _ in range(45):
        timesteps.draw(IMAGES)
        timesteps.observe(torch.ones(4))
    assert len(read) == 2
    timesteps.draw(IMAGES)
    timesteps.observe(torch.full((4,), torch.nan))
    with pytest.raises(NotFinite, match="step 46"):
        timesteps.state_dict()
