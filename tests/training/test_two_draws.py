"""A step may draw its timesteps more than once, as MeanFlow and consistency losses need two times of each image, and
its noise, for K noises of each image or samples of the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import Denoiser, Offset, TrainingNoise, Unit, V, linear
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position, Stratified, Uniform
from diffusion_lab.training import DiffusionModule

T, X0 = 1000, torch.zeros(16, 1, 2, 2)


def module(coupling: TrainingNoise | None = None) -> DiffusionModule:
    return DiffusionModule(Denoiser(nn.Identity(), linear(T), V()), Unit(), torch.optim.SGD, Streams(3), coupling)


def test_a_second_draw_has_numbers_of_its_own_and_the_first_those_of_a_single_one() -> None:
    one = module()
    one._position = Position(5)
    first, second, third = (one.draw_timesteps(X0, {}).t for _ in range(3))
    assert torch.equal(first, Uniform(T).draw(X0, Context(Position(5), Streams(3))).t)
    assert torch.equal(second, Uniform(T).draw(X0, Context(Position(5), Streams(3), draw=1)).t)
    for a, b in ((first, second), (first, third), (second, third)):
        assert (a != b).sum() >= 14
    one._position = Position(5)  # the next microbatch, or the same step of a resumed run
    assert torch.equal(one.draw_timesteps(X0, {}).t, first) and torch.equal(one.draw_timesteps(X0, {}).t, second)


def test_the_second_draw_too_does_not_depend_on_how_the_batch_is_split() -> None:
    sampler = Stratified(Uniform(T))
    whole = sampler.draw(X0, Context(Position(5), Streams(3), draw=1)).t
    halves = [sampler.draw(X0[:8], Context(Position(5, rank, 2), Streams(3), draw=1)).t for rank in (0, 1)]
    assert torch.equal(torch.cat(halves), whole)
    assert whole.sort().values.div(T / 16).long().tolist() == list(range(16))  # one in each of the 16 slices


@pytest.mark.parametrize("coupling", [None, Offset(0.5)])
def test_a_second_noise_has_numbers_of_its_own_and_does_not_depend_on_how_the_batch_is_split(coupling: Any) -> None:
    of = module(coupling)
    of._position = Position(5)
    noises = [of.noise(X0, draw) for draw in range(3)]
    assert torch.equal(noises[0], of.noise(X0)) and all(abs(one.std() - 1) < 0.5 for one in noises)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (noises[a] - noises[b]).abs().min() > 0
    of._position = Position(5, 1, 2)
    assert torch.equal(of.noise(X0[:8], 1), noises[1][8:])
