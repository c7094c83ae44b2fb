"""Self-conditioning: what the network is given in training, and in sampling with any solver."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.cli.main import main
from diffusion_lab.data import Digits, GaussianMixture, ImageDataModule, SuperResolution
from diffusion_lab.diffusion import X0, Denoiser, Unit, rectified_flow
from diffusion_lab.solvers import DDIM, DDPM, Euler, Guided, Heun, Solver
from diffusion_lab.streams import Position, Streams
from diffusion_lab.training import SelfConditionedDenoiser, SelfConditionedModel, SelfConditionedModule
from diffusion_lab.training.self_conditioning import take_estimate
from tests.auxiliary.small import at, images

T = 20


class Pair(nn.Module):
    """a x + b x0_hat + the label's number, and what it was given."""

    def __init__(self, a: float = 0.5, b: float = 0.25) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(a)), nn.Parameter(torch.tensor(b))
        self.given: list[Tensor] = []
        self.answers: list[Tensor] = []

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        first, second = x.chunk(2, dim=1)
        self.given.append(second.detach())
        self.answers.append(self.a * first + self.b * second + (0 if label is None else label[:, None, None, None]))
        return self.answers[-1]


class Labelless(nn.Module):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return x


def model(**more: Any) -> SelfConditionedDenoiser:
    return SelfConditionedDenoiser(Pair(), rectified_flow(T), X0(), **more)


def module(probability: float = 0.5, **more: Any) -> Any:
    optimizer = partial(torch.optim.SGD, lr=0.1)
    return SelfConditionedModule(model(**more), Unit(), optimizer, Streams(0), probability=probability)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_rows_are_given_their_own_estimate_or_zeros(probability: float) -> None:
    of = at(module(probability), 3)
    pairs = of.pair(images(400), {})
    loss = of.losses(pairs).loss
    x_t = of.denoiser.schedule.perturb(pairs.x0, pairs.eps, pairs.t)
    before, given = of.network.given
    chosen = Streams(0).uniform(400, "self_conditioning", 3) < probability
    expected = torch.where(chosen[:, None, None, None], (0.5 * x_t).clamp(-1, 1), 0.0)
    assert not before.any() and torch.equal(given, expected) and abs(chosen.float().mean() - probability) < 0.1
    assert torch.allclose(loss, (0.5 * x_t + 0.25 * expected - pairs.x0).square().flatten(1).mean(1))
    loss.sum().backward()  # the estimate has no gradient: that of a is of a x_t alone
    residual = 0.5 * x_t + 0.25 * expected - pairs.x0
    assert torch.allclose(of.network.a.grad, (2 * residual * x_t).flatten(1).mean(1).sum())


def test_rows_do_not_depend_on_processes_and_microbatches() -> None:
    whole, part = at(module(), 3), module()
    pairs = whole.pair(images(), {})
    whole.losses(pairs)
    part._position, part._tick = Position(3, 1, 3), lambda rows: None
    rows = slice(2, 4)
    part.losses(type(pairs)(*(value[rows] for value in (pairs.x0, pairs.eps, pairs.t, pairs.weight)), {}))
    assert torch.equal(part.network.given[1], whole.network.given[1][rows])


def test_autocast_keeps_the_gradient_of_the_weights() -> None:
    network = nn.Conv2d(2, 1, 3, padding=1)
    network.forward = lambda x, t, forward=network.forward: forward(x)  # type: ignore[method-assign]
    denoiser = SelfConditionedDenoiser(network, rectified_flow(T), X0())
    of = at(SelfConditionedModule(denoiser, Unit(), partial(torch.optim.SGD, lr=0.1), Streams(0)), 0)
    with torch.autocast("cpu", torch.bfloat16):
        of.losses(of.pair(images(), {})).loss.sum().backward()
    assert network.weight.grad is not None and network.weight.grad.norm() > 0


def sampled(solver: Solver, denoiser: Any = None, **cond: Any) -> tuple[Tensor, Pair]:
    denoiser = denoiser or model()
    noise = lambda k, like: torch.randn(like.shape, generator=torch.Generator().manual_seed(k)).to(like)  # noqa: E731
    return solver(denoiser, images(3), noise=noise, **cond), denoiser.network


@pytest.mark.parametrize(
    "solver", [DDIM(5), DDIM(None, eta=1.0), DDPM(5), DDPM(None), Euler(5), Heun(4)], ids=lambda one: type(one).__name__
)
def test_each_call_is_given_the_estimate_of_the_call_before(solver: Solver) -> None:
    _, network = sampled(solver)
    calls = 2 * 4 - 1 if isinstance(solver, Heun) else solver.steps or T
    assert len(network.given) == calls and not network.given[0].any()
    for given, answer in zip(network.given[1:], network.answers[:-1], strict=True):
        assert torch.equal(given, answer.clamp(-1, 1)) and given.any()


def test_a_loop_forgets_the_one_before_and_nothing_is_kept_outside() -> None:
    denoiser = model()
    one, other = (sampled(DDIM(5), denoiser)[0] for _ in range(2))
    assert torch.equal(one, other) and denoiser._last is None
    t = torch.full((3,), 4)
    first, second = (denoiser.estimate(images(3), t).x0 for _ in range(2))
    assert torch.equal(first, second)
    plain = Denoiser(take_estimate(Pair()), rectified_flow(T), X0())  # always zeros
    assert not torch.equal(sampled(DDIM(5), plain)[0], one)


def test_both_answers_of_guidance_are_given_the_guided_estimate() -> None:
    denoiser = model(null_label=1, clip=False)
    label = torch.zeros(3, dtype=torch.int64)
    _, network = sampled(Guided(Euler(3, clip=False), scale=2.0), denoiser, label=label)
    for given, answer in zip(network.given[1:], network.answers[:-1], strict=True):
        own, null = answer.chunk(2)
        assert torch.equal(given, torch.cat(2 * [null + 2.0 * (own - null)]))


def test_data_that_do_not_fit_are_refused() -> None:
    kind, data = SelfConditionedModel(), ImageDataModule(Digits(), 8, task=SuperResolution(2))
    said = list(kind.faults(Labelless(), {"dataset": data}))
    assert any("task=SuperResolution must be image_generation with self-conditioning" in one for one in said)
    latents = ImageDataModule(GaussianMixture([0.0], [1.0]), 8)
    (fault,) = kind.faults(Labelless(), {"dataset": latents})
    assert "model.clip=true must be false with gaussian" in fault
    assert list(SelfConditionedModel(clip=False).faults(Labelless(), {"dataset": latents})) == []


@pytest.mark.parametrize("solver", [["solver=meanflow"], ["solver=guided", "solver@solver.base=meanflow"]])
def test_a_solver_of_intervals_is_refused(
    solver: list[str], capsys: pytest.CaptureFixture[str], in_folder: Any
) -> None:
    labels = ["dataset.conditional=true", "dataset.label_dropout=0.1"]
    quick = ["network.base_channels=8", "max_steps=1", "trainer=cpu", *labels]
    assert main(["train", "method=self_conditioning", *solver, *quick]) == 2
    assert "must have a model that was trained on intervals; train with method=meanflow" in capsys.readouterr().err
