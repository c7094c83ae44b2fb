"""What the learned Beta sampler adds to training, over cycles of 40 steps.

    (40 step + 39 draw + update)/(40 step)

- `step`: forward, backward, clip and optimizer of one batch,
- `draw`: sampling from the policy, as at every step,
- `update`: once in a cycle a draw, the losses before and after the optimizer step, a policy update, and a new set S.

All three are calls of the sampler and the network, interleaved, in float32 and seconds of one thread; a step here has
no average, no log and no Lightning, which makes the ratio larger. T/B = 8, as in Kim et al.'s training on CIFAR-10 (T =
1000, B = 128): T = 128 and B = 16 for a U-Net of width 32 and for the paper's of 35.7 M. Network rows alone, with a
forward pass as a third of a step, give 1 + (2 points + 2 |S| rewarded rows)/(120 B): 1.026 by default, 1.183 on the
full grid. For the paper's network the full grid is left out, because one policy update takes a minute.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from benchmarks.paired import Ratio, interleaved
from benchmarks.table import Goal, Line, at_most
from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, LearnedBeta, Position, StepRecord
from diffusion_lab.training import DenoiserProbe, DiffusionModule

CYCLE = 40  # steps per policy update, f_S
STRIDE = "sampler.grid_stride=10"  # the same density of points as the default at T = 1000
PICTURES = [  # Gaussian pixels, which are in memory and need no preparation
    "dataset=gaussian",
    "dataset.source.channels=3",
    "dataset.source.image_size=32",
    "dataset.source.num_images=64",
    "schedule.num_timesteps=128",
    "batch_size=16",
]
DIGITS = ["dataset=digits", "network=unet_tiny", "schedule.num_timesteps=1000", "batch_size=128"]


class Mode(NamedTuple):
    """A configuration of the sampler, and the goal of its cost."""

    name: str
    overrides: list[str]
    goal: Goal | None = None


DEFAULT = Mode("every 10th timestep, a quarter of the rows", ["sampler=learned_beta", STRIDE], at_most(1.05))
FULL = Mode(
    "all timesteps, all rows",
    ["sampler=learned_beta", "sampler.grid_stride=1", "sampler.reward_every=1"],
    at_most(1.22),
)
RELEASED = Mode("learned_beta_released: with fresh noise and dropout", ["sampler=learned_beta_released"])


def lines() -> Iterator[Line]:
    """The third group has no goals, because its policy is larger than its network."""
    width = ["network=unet_ddpm", "network.base_channels=32"]
    yield from _lines("width 32", [*PICTURES, *width], [DEFAULT, FULL, RELEASED], rounds=2)
    yield from _lines("35.7 M", [*PICTURES, "network=unet_ddpm"], [DEFAULT], rounds=1)
    without = [mode._replace(goal=None) for mode in (DEFAULT, FULL, RELEASED)]
    yield from _lines("digits, 0.16 M, T = 1000, B = 128", DIGITS, without, rounds=6)


def _lines(setting: str, training: list[str], modes: Sequence[Mode], rounds: int) -> Iterator[Line]:
    cfg = _composed(training)
    parts = RunParts(cfg)
    data = parts["dataset"]
    module, x0 = build_module(parts), torch.rand(cfg.batch_size, *data.shape) * 2 - 1
    probe = DenoiserProbe(module.denoiser, Streams(0), max_rows=2 * len(x0))  # as in a run
    tasks: dict[str, Callable[[], object]] = {"step": _step(module, x0)}
    for mode in modes:
        sampler = part(_composed([*training, *mode.overrides]), "sampler")
        sampler.setup(data.shape)
        tasks[f"update {mode.name}"] = _sampler_step(sampler, x0, 0, probe)
        tasks[f"draw {mode.name}"] = _sampler_step(sampler, x0, 1, probe)
    seconds = interleaved(tasks, rounds)
    steps = [CYCLE * step for step in seconds["step"]]
    for mode in modes:
        draws = [(CYCLE - 1) * draw / some for draw, some in zip(seconds[f"draw {mode.name}"], steps, strict=True)]
        update = [one / some for one, some in zip(seconds[f"update {mode.name}"], steps, strict=True)]
        total = Ratio.of([1 + a + b for a, b in zip(draws, update, strict=True)])
        note = f"draws {statistics.median(draws):.3f}, policy update {statistics.median(update):.3f}"
        yield Line(f"{setting}: {mode.name}", total, mode.goal, note=note)


def _composed(words: list[str]) -> DictConfig:
    with tempfile.TemporaryDirectory() as folder:
        return compose_train(["base=ddpm", *words], Path(folder) / "run")


def _step(module: DiffusionModule, x0: Tensor) -> Callable[[], None]:
    optimizer, streams = module.configure_optimizers(), Streams(0)
    t = torch.arange(len(x0)) % module.denoiser.num_timesteps

    def run() -> None:
        module.train()
        noise = streams.normal(tuple(x0.shape), "noise", 0)
        module.denoiser.loss(x0, noise, t).native.mean().backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return run


def _sampler_step(sampler: LearnedBeta, x0: Tensor, step: int, probe: DenoiserProbe) -> Callable[[], None]:
    """`draw` and `observe` of one step; step 0 updates the policy, step 1 does not."""

    def run() -> None:
        with torch.no_grad():
            context = Context(Position(step), Streams(0), probe=probe)
            t, weight = sampler.draw(x0, context)
            sampler.observe(StepRecord(x0, {}, t, weight, weight), context)

    return run
