"""A method that a subclass overrides is called wherever the class is used, or one sentence says why it is not.

The classes are those of conf/: each is subclassed with one method that notes its call, for every method that its family
calls, and used as itself, in copies (`at`, `respace`, `guided`, `with_network`, `with_steps`) and inside other parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose
from hydra.utils import instantiate
from torch import nn

from diffusion_lab.analyses.samples.replacement import TrueDenoiser
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.diffusion import Denoiser, MinSNR, NoiseSchedule, Uncertainty, V, cosine
from diffusion_lab.solvers import Guided, network_calls
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Mixture, Position, StepRecord, Stratified, TimestepSampler
from diffusion_lab.training import DiffusionModel, DiffusionModule

T = 24
KEPT = torch.tensor([0, 3, 7, 11])
X0, EPS, LABEL = torch.randn(2, 2, 1, 2, 2, generator=torch.Generator().manual_seed(0)).unbind(0) + (
    torch.zeros(2).long(),
)


def options(group: str) -> list[str]:
    """The files of a group with a class of their own; those of a GAN's networks and the like are in other groups."""
    return sorted(path.stem for path in Path(conf_dir(), group).glob("*.yaml"))


@cache
def node(group: str, option: str) -> Any:
    """The class or function of an option, with its arguments as objects, as a `functools.partial`."""
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=[f"{group}={option}", f"schedule.num_timesteps={T}", "max_steps=40"])
    if cfg[group].get("path", "") is None:  # a sampler that reads a file
        cfg[group].probabilities = [1.0] * T
    return instantiate(cfg[group], _convert_="all", _partial_=True)


def noting(kind: type, method: str, seen: set[str]) -> type:
    """A subclass of `kind` whose `method` notes that it was called."""

    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        seen.add(method)
        return getattr(super(mine, self), method)(*arguments, **named)

    mine = type("Mine", (kind,), {method: noted})
    return mine


def check(kind: type, method: str, use: Callable[[type], Any]) -> None:
    """`use` calls the method of a subclass of `kind`, or raises a sentence that names the class."""
    seen: set[str] = set()
    try:
        use(noting(kind, method, seen))
    except ValueError as error:
        assert "Mine" in str(error), error
        return
    assert method in seen, f"{method} of a subclass of {kind.__name__} is not called"


class Answer(nn.Module):
    """As many channels as are asked for, zero but for x."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: torch.Tensor, t: torch.Tensor, **cond: torch.Tensor) -> torch.Tensor:
        return x.repeat(1, self.channels, 1, 1)


def copies(denoiser: Denoiser) -> list[Denoiser]:
    """The denoiser as solvers and analyses use it, without itself."""
    other = denoiser.with_network(Answer(denoiser.prediction.heads))
    return [denoiser.respace(KEPT), denoiser.guided(2.0), other, denoiser.guided(2.0).respace(KEPT)]


def used(denoiser: Denoiser) -> None:
    t = torch.tensor([1, 3])
    denoiser.loss(X0, EPS, t, label=LABEL)
    denoiser.estimate(EPS, t, label=LABEL)
    denoiser.reverse(EPS, t, label=LABEL)


PREDICTION = ["at", "target", "estimate", "head_scales", "loss", "parts", "errors"]


@pytest.mark.parametrize("option", options("prediction"))
@pytest.mark.parametrize("method", PREDICTION)
def test_of_a_prediction(option: str, method: str) -> None:
    made = node("prediction", option)
    for copy in range(4):

        def use(mine: type, copy: int = copy) -> None:
            prediction = mine(**made.keywords)
            denoiser = Denoiser(Answer(prediction.heads), cosine(T), prediction, null_label=1)
            used(copies(denoiser)[copy])

        check(made.func, method, use)


@pytest.mark.parametrize("option", options("schedule"))
@pytest.mark.parametrize("method", ["perturb", "posterior_mean", "alpha", "sigma"])
def test_of_a_schedule(option: str, method: str) -> None:
    for copy in range(4):

        def use(mine: type, copy: int = copy) -> None:
            schedule = node("schedule", option)()
            schedule.__class__ = mine
            used(copies(Denoiser(Answer(), schedule, V(), null_label=1))[copy])

        check(type(node("schedule", option)()), method, use)


def test_a_schedule_keeps_what_its_subclass_adds_by_timestep() -> None:
    class Mine(NoiseSchedule):
        own: torch.Tensor

        def __init__(self) -> None:
            super().__init__(cosine(T * 2).betas)
            self.register_buffer("own", torch.arange(2 * T))
            self.word = "mine"

    schedule = Mine()
    respaced = schedule.respace(KEPT)
    assert respaced.own.tolist() == KEPT.tolist() and respaced.word == "mine" and len(schedule.own) == 2 * T
    assert torch.equal(respaced.betas, cosine(T * 2).respace(KEPT).betas) and schedule.num_timesteps == 2 * T
    assert torch.equal(respaced.half().betas, respaced.betas)


@pytest.mark.parametrize("method", ["estimate", "reverse", "loss"])
def test_of_the_denoiser(method: str) -> None:
    def mine_of(mine: type) -> Denoiser:
        return mine(Answer(), cosine(T), V(), null_label=1)

    for copy in range(4):
        check(Denoiser, method, lambda mine, copy=copy: used(copies(mine_of(mine))[copy]))
    if method != "loss":  # an analysis that replaces some of the estimates
        replaced = torch.zeros(T, dtype=torch.bool)
        check(Denoiser, method, lambda mine: used(TrueDenoiser(mine_of(mine), X0, replaced).respace(KEPT)))


def steps_of(solver: Any) -> Any:
    """The solver with few enough steps for T timesteps."""
    return solver.with_steps(4)


@pytest.mark.parametrize("option", [option for option in options("solver") if option not in ("guided", "autoguided")])
def test_a_solver_calls_what_a_denoiser_overrides(option: str) -> None:
    seen: set[str] = set()
    denoiser = noting(noting(Denoiser, "estimate", seen), "reverse", seen)(Answer(), cosine(T), V(), null_label=1)
    for solver in (steps_of(node("solver", option)()), Guided(steps_of(node("solver", option)()))):
        seen.clear()
        solver(denoiser, EPS, noise=lambda k, like: torch.zeros_like(like), label=LABEL)
        assert seen
        seen.clear()
        assert network_calls(solver, denoiser) and seen


@pytest.mark.parametrize("option", [option for option in options("solver") if option not in ("guided", "autoguided")])
@pytest.mark.parametrize("method", ["solve", "check", "describe"])
def test_of_a_solver(option: str, method: str) -> None:
    made = node("solver", option)

    def run(solver: Any) -> None:
        denoiser = Denoiser(Answer(), cosine(T), V(), null_label=1)
        solver.check(denoiser.schedule)
        solver.describe()
        solver(denoiser, EPS, noise=lambda k, like: torch.zeros_like(like), label=LABEL)

    check(made.func, method, lambda mine: run(steps_of(mine(**made.keywords))))
    check(made.func, method, lambda mine: run(Guided(mine(**made.keywords), steps=4)))
    check(made.func, method, lambda mine: run(Guided(mine(**made.keywords)).with_steps(4)))


@pytest.mark.parametrize("option", options("weighting"))
@pytest.mark.parametrize("method", ["x0_weight", "native_weight", "forward"])
def test_of_a_weighting(option: str, method: str) -> None:
    made = node("weighting", option)
    ones = torch.ones(2, 1)

    check(made.func, method, lambda mine: mine(**made.keywords)(ones, ones[:, 0], ones, 3))
    check(made.func, method, lambda mine: Uncertainty(mine(**made.keywords))(ones, ones[:, 0], ones, 3))


SAMPLER = ["probabilities", "quantile", "weight", "draw", "observe"]


@pytest.mark.parametrize("option", options("sampler"))
@pytest.mark.parametrize("method", SAMPLER)
def test_of_a_sampler(option: str, method: str) -> None:
    made = node("sampler", option)

    def run(sampler: Any) -> None:
        sampler.setup((1, 2, 2))
        x0 = torch.zeros(4, 1, 2, 2)
        context = Context(Position(0), Streams(0), probe=Flat())
        drawn = sampler.draw(x0, context)
        sampler.probabilities(0)  # as the log does
        loss = torch.ones(4)
        sampler.observe(StepRecord(x0, {}, drawn.t, loss, loss), context)

    check(made.func, method, lambda mine: run(mine(**made.keywords)))
    for around in (Stratified, Mixture):
        if around is Mixture and method == "weight":  # it has its own, as its `base` says
            continue
        check(made.func, method, lambda mine, around=around: run(around(mine(**made.keywords))))


@pytest.mark.parametrize("option", options("sampler"))
def test_draws_follow_overridden_probabilities_or_a_sentence_says_that_they_do_not(option: str) -> None:
    made, seen = node("sampler", option), set[str]()
    try:
        sampler = noting(made.func, "probabilities", seen)(**made.keywords)
    except ValueError as error:
        assert "Mine must override quantile with probabilities" in str(error)
        return
    seen.clear()
    sampler.setup((1, 2, 2))
    sampler.draw(torch.zeros(4, 1, 2, 2), Context(Position(0), Streams(0), probe=Flat()))
    assert seen or made.func.draw is not TimestepSampler.draw  # it may estimate what its own draws do


class Flat:
    """Losses of 1."""

    def pairs(self, x0: torch.Tensor, t: torch.Tensor, *arguments: Any, **cond: Any) -> torch.Tensor:
        return torch.ones(len(t))

    def loss(self, x0: torch.Tensor, t: torch.Tensor, *arguments: Any, **cond: Any) -> torch.Tensor:
        return torch.ones(len(x0), len(t))

    def grad_sq_norm(self, x0: torch.Tensor, t: torch.Tensor, *arguments: Any, **cond: Any) -> torch.Tensor:
        return torch.ones(len(x0))

    def grad_moments(self, x0: torch.Tensor, t: torch.Tensor, *arguments: Any, **cond: Any) -> Any:
        return torch.ones(len(t)), torch.ones(len(t))


def test_a_kind_of_model_trains_and_generates_with_the_classes_that_it_names() -> None:
    class Own(Denoiser):
        pass

    class Trained(DiffusionModule):
        pass

    class Kind(DiffusionModel):
        trains, generates = Trained, Own

    parts: dict[str, Any] = dict.fromkeys(("variance", "preconditioning", "time", "coupling", "auxiliary", "optimizer"))
    parts |= {"schedule": cosine(T), "prediction": V(), "weighting": MinSNR(), "dataset": Unlabelled()}
    whole = Kind().whole(Answer(), parts)
    assert type(whole) is Own and type(whole.respace(KEPT)) is Own
    assert type(Kind().module(whole, parts, Streams(0))) is Trained


class Unlabelled:
    """A data set without labels."""

    @property
    def conditions(self) -> Unlabelled:
        return self

    null_label = None
