"""A timestep sampler in a loop that is not Lightning's: the draws are those of a run, and it learns from the losses."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from diffusion_lab.callbacks import TimestepSampling
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, Unit, bound_weights, cosine
from diffusion_lab.diffusion.variance import FixedLarge
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.networks import UNet
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import LearnedBeta, LossSecondMoment, TimestepSampler, Uniform
from diffusion_lab.training import DiffusionModule, LoopSampler, NotFinite
from diffusion_lab.training.own_loop import _Evaluated

STEPS, ROWS, T = 6, 16, 8


def loss_second_moment() -> TimestepSampler:
    return LossSecondMoment(T, history_per_timestep=1)


def learned_beta() -> TimestepSampler:
    weights = bound_weights(cosine(T), Epsilon(), FixedLarge())
    return LearnedBeta(T, weights, every=2, queue=3, select_from=2, hidden=8)


def model() -> Denoiser:
    torch.manual_seed(0)
    network = UNet(1, 1, 8, 8, (1, 2), 1, (), dropout=0.0)
    return Denoiser(network, cosine(T), Epsilon())


class Seen(TimestepSampling):
    """Keeps the images and timesteps of every update."""

    def __init__(self, sampler: TimestepSampler) -> None:
        super().__init__(sampler)
        self.rows: list[tuple[Tensor, Tensor]] = []

    def on_step_end(self, trainer, module, step, records) -> None:
        self.rows += [(record.x0.clone(), record.t.clone()) for record in records]
        super().on_step_end(trainer, module, step, records)


def by_lightning(sampler: TimestepSampler, accumulate: int) -> tuple[Denoiser, list[tuple[Tensor, Tensor]]]:
    denoiser, seen = model(), Seen(sampler)
    module = DiffusionModule(denoiser, Unit(), partial(torch.optim.Adam, lr=1e-2), Streams(3))
    trainer = Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=accumulate,
        callbacks=[seen],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, ImageDataModule(Digits(), batch_size=ROWS, accumulate=accumulate))
    return denoiser, seen.rows


@pytest.mark.filterwarnings("ignore")  # of Lightning
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("make", [loss_second_moment, learned_beta])
def test_a_plain_loop_trains_the_same_model_as_a_run_to_the_bit(make, accumulate: int) -> None:
    expected, rows = by_lightning(make(), accumulate)
    denoiser, streams, sampler = model().train(), Streams(3), make()
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-2)
    timesteps = LoopSampler(
        sampler, 3, accumulate, losses=lambda x0, eps, t: denoiser.loss(x0, eps, t).native, network=denoiser
    )
    images = iter(rows)
    for step in range(STEPS):
        losses = []
        for micro in range(accumulate):
            x0, wanted = next(images)
            t, weight = timesteps.draw(x0)
            assert torch.equal(t, wanted), f"step {step}"
            eps = streams.normal((ROWS, *x0.shape[1:]), "noise", step)[micro * len(x0) :][: len(x0)]
            loss = denoiser.loss(x0, eps, t).native
            ((weight * loss).mean() / accumulate).backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        timesteps.observe(torch.cat(losses))
    assert timesteps.step == STEPS
    assert all(map(torch.equal, denoiser.parameters(), expected.parameters()))
    uniform = [LoopSampler(Uniform(T), 3).draw(rows[0][0]).t, rows[-1][1]]
    assert not torch.equal(*uniform)  # a control: the distribution has changed


def losses_of(x0: Tensor, t: Tensor) -> Tensor:
    return x0.square().flatten(1).mean(1) * (1 + t)


def test_a_loop_goes_on_with_the_same_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = torch.randn(8, ROWS, 1, 8, 8, generator=generator)
    whole, drawn = LoopSampler(loss_second_moment(), 1), []
    for x0 in batches:
        drawn.append(whole.draw(x0).t)
        whole.observe(losses_of(x0, drawn[-1]))
    first = LoopSampler(loss_second_moment(), 1)
    for x0 in batches[:5]:
        first.observe(losses_of(x0, first.draw(x0).t))
    second = LoopSampler(loss_second_moment(), 1)
    second.load_state_dict(first.state_dict())
    again = []
    for x0 in batches[5:]:
        again.append(second.draw(x0).t)
        second.observe(losses_of(x0, again[-1]))
    assert all(map(torch.equal, drawn[5:], again)) and second.step == whole.step == 8
    fresh = LoopSampler(loss_second_moment(), 1).draw(batches[5]).t
    assert not torch.equal(fresh, drawn[5])


def test_what_a_loop_discards_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that sees a NaN itself goes back to an older state, before the host has looked, as on a GPU."""
    monkeypatch.setattr("diffusion_lab.training.own_loop._steps_between_looks", lambda device: 20)
    timesteps, x0 = LoopSampler(loss_second_moment(), 1), torch.zeros(ROWS, 1, 8, 8)
    timesteps.observe(losses_of(x0, timesteps.draw(x0).t))
    saved = timesteps.state_dict()
    timesteps.observe(torch.full_like(losses_of(x0, timesteps.draw(x0).t), torch.nan))
    timesteps.load_state_dict(saved)
    assert timesteps.state_dict()["step"] == 1
    timesteps.observe(torch.full_like(losses_of(x0, timesteps.draw(x0).t), torch.nan))
    with pytest.raises(NotFinite):  # a control
        timesteps.state_dict()


def test_a_sampler_that_does_not_adapt_needs_no_losses() -> None:
    timesteps, x0 = LoopSampler(Uniform(1000), 0, accumulate=2), torch.zeros(ROWS, 1, 4, 4)
    draws = [timesteps.draw(x0).t for _ in range(6)]
    assert timesteps.step == 3 and len({tuple(t.tolist()) for t in draws}) == 6


@pytest.mark.parametrize(
    "said, act",
    [
        ("losses=None must be given", lambda: LoopSampler(learned_beta())),
        ("accumulate=0 must be an integer", lambda: LoopSampler(Uniform(T), accumulate=0)),
        ("call observe(loss) after", lambda: _draw_twice(LoopSampler(loss_second_moment()))),
        ("must have a value for each of the 16 rows", lambda: _observe_a_mean(LoopSampler(loss_second_moment()))),
        ("there is none; call draw(x0) first", lambda: LoopSampler(Uniform(T)).observe(torch.ones(ROWS))),
        ("like this one (RuntimeError: Error(s) in loading state_dict", lambda: _load(LossSecondMoment(T + 1))),
        ("of a LoopSampler with a LossSecondMoment like this one", lambda: _load(Uniform(T))),
        ("like this one (KeyError: 'step')", lambda: LoopSampler(Uniform(T)).load_state_dict({})),
    ],
)
def test_errors_are_sentences(said: str, act) -> None:
    with pytest.raises(ValueError, match="; (use|call) ") as error:
        act()
    assert said in str(error.value)


def _load(other: TimestepSampler) -> None:
    """The state of a loop with another sampler, in one sentence and without a change of the step."""
    saved, timesteps = LoopSampler(other), LoopSampler(loss_second_moment())
    saved.draw(torch.zeros(ROWS, 1, 4, 4))
    saved.observe(torch.ones(ROWS))
    try:
        timesteps.load_state_dict(saved.state_dict())
    except ValueError as error:
        assert "\n" not in str(error) and timesteps.step == 0
        raise


def _draw_twice(timesteps: LoopSampler) -> None:
    timesteps.draw(torch.zeros(ROWS, 1, 4, 4))
    timesteps.draw(torch.zeros(ROWS, 1, 4, 4))


def _observe_a_mean(timesteps: LoopSampler) -> None:
    timesteps.draw(torch.zeros(ROWS, 1, 4, 4))
    timesteps.observe(torch.tensor(0.5))


def test_a_loss_that_is_a_module_is_no_part_of_what_is_probed() -> None:
    """Its parameters counted in the norms of gradients, and a probe put it into eval mode."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
            assert self.training
            return (self.scale * x0 - eps).flatten(1).square().mean(1)

    network, losses = nn.Linear(4, 4), Scaled()
    evaluated = _Evaluated(network, losses)
    assert list(evaluated.parameters()) == list(network.parameters())
    with eval_mode(evaluated):
        assert not network.training
        assert len(evaluated.loss(torch.ones(2, 4), torch.zeros(2, 4), torch.zeros(2)).native) == 2
