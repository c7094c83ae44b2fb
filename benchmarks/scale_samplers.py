"""Timestep samplers: the CPU time of a step's draw and update as the number of timesteps T grows.

A draw of 64 rows and the update with their losses, 100 times in turn for T = 1,000, 10,000 and 100,000, after every
timestep has had a loss. The exponent a of time ~ T^a is that between the first and the last. `clts` with a moving mean
computes a table of T numbers at each draw, as its page says, and shows what an exponent of such a sampler is.

Measured on 2026-11-27, 2 shared cores of an AMD EPYC without AVX-512, one thread, us at T = 1,000 and exponent: uniform
70, -0.01; logit_normal 119, 0.04; clts 191, 0.03; speed 260, 0.01; equal_loss_slots 315, 0.01; infonoise 420, 0.00;
loss_second_moment 1,081, 0.09, where a draw adds up T numbers once (stratified 1,228, 0.10); clts with a moving mean
322, 0.28. What loss_second_moment took before, over now, in turn: 1.11 at T = 1,000, 1.66 at 10,000, 9.4 at 100,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from benchmarks.paired import Ratio, interleaved
from benchmarks.table import Goal, Line, at_most
from diffusion_lab.diffusion import cosine
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import (
    CLTS,
    Context,
    EqualLossSlots,
    InfoNoise,
    LogitNormal,
    LossSecondMoment,
    Position,
    SpeeD,
    StepRecord,
    Stratified,
    TimestepSampler,
    Uniform,
)

TIMESTEPS, ROWS, TIMES, ROUNDS = (1_000, 10_000, 100_000), 64, 100, 5
SAMPLERS: dict[str, Callable[[int], TimestepSampler]] = {
    "uniform": Uniform,
    "logit_normal": LogitNormal,
    "clts": lambda steps: CLTS(steps, 1000),
    "speed": lambda steps: SpeeD(cosine(steps)),
    "equal_loss_slots": EqualLossSlots,
    "infonoise": lambda steps: InfoNoise(cosine(steps), torch.ones(steps), torch.ones(steps), Uniform(steps)),
    "loss_second_moment": lambda steps: LossSecondMoment(steps, 1),
    "stratified loss_second_moment": lambda steps: Stratified(LossSecondMoment(steps, 1)),
    "clts, moving mean": lambda steps: CLTS(steps, 1000, mean_end=1.0),
}


def lines() -> Iterator[Line]:
    for name, make in SAMPLERS.items():
        seconds = interleaved({str(steps): _steps(make(steps)) for steps in TIMESTEPS}, ROUNDS)
        first, *_, last = (seconds[str(steps)] for steps in TIMESTEPS)
        exponents = [math.log(b / a) / math.log(TIMESTEPS[-1] / TIMESTEPS[0]) for a, b in zip(first, last, strict=True)]
        goal: Goal | None = None if "moving" in name else at_most(0.05)
        yield Line(f"{name}, T = 1,000", Ratio.of([1e6 * value / TIMES for value in first]), unit="us")
        yield Line(f"{name}: exponent in T", Ratio.of(exponents), goal)


def _steps(sampler: TimestepSampler) -> Callable[[], None]:
    """Some steps of a sampler that has seen a loss of every timestep."""
    x0, streams = torch.zeros(ROWS, 1, 1, 1), Streams(0)

    def record(t: torch.Tensor) -> StepRecord:
        loss = 1 + t / sampler.num_timesteps
        return StepRecord(torch.zeros(len(t), 1, 1, 1), {}, t, loss, loss)

    sampler.observe(record(torch.arange(sampler.num_timesteps)), Context(Position(0), streams))

    def run() -> None:
        for step in range(1, 1 + TIMES):
            context = Context(Position(step), streams)
            sampler.observe(record(sampler.draw(x0, context).t), context)

    return run
