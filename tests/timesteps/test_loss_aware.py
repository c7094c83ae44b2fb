"""LossSecondMoment against the sequential algorithm and closed forms."""

import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, LossSecondMoment, Position, StepRecord


def record(t, loss):
    t, loss = torch.tensor(t), torch.tensor(loss, dtype=torch.float64)
    return StepRecord(torch.zeros(len(t), 1, 1, 1), {}, t, loss, loss)


CONTEXT = Context(Position(0), Streams(0))


def test_history_keeps_the_last_losses_of_each_timestep():
    """The published algorithm, one loss at a time, on random batches with many repeats of a timestep."""
    steps, size = 4, 3
    sampler = LossSecondMoment(steps, history_per_timestep=size)
    last = [[] for _ in range(steps)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        t = torch.randint(steps, (11,), generator=generator).tolist()
        loss = torch.rand(11, generator=generator, dtype=torch.float64).tolist()
        sampler.observe(record(t, loss), CONTEXT)
        for i, value in zip(t, loss, strict=True):
            last[i] = (last[i] + [value])[-size:]
        for i in range(steps):
            assert sorted(sampler.history[i, : len(last[i])].tolist()) == pytest.approx(sorted(last[i]))


def test_uniform_until_every_timestep_has_its_history():
    sampler = LossSecondMoment(3, history_per_timestep=2, uniform=0.0, reweight=False)
    sampler.observe(record([0, 0, 1, 1, 2], [5.0, 5.0, 1.0, 1.0, 1.0]), CONTEXT)
    assert sampler.probabilities(1).tolist() == pytest.approx([1 / 3] * 3)
    sampler.observe(record([2], [1.0]), CONTEXT)
    assert sampler.probabilities(2).tolist() == pytest.approx([5 / 7, 1 / 7, 1 / 7])


def test_probability_is_the_root_mean_square_mixed_with_uniform():
    sampler = LossSecondMoment(2, history_per_timestep=2, uniform=0.1)
    sampler.observe(record([0, 0, 1, 1], [3.0, 4.0, 0.0, 1.0]), CONTEXT)
    root = torch.tensor([12.5**0.5, 0.5**0.5])
    expected = 0.9 * root / root.sum() + 0.05
    assert sampler.probabilities(1).tolist() == pytest.approx(expected.tolist())


def test_reweighting_estimates_the_uniform_mean_without_bias():
    sampler = LossSecondMoment(2, history_per_timestep=1, uniform=0.1)
    loss = torch.tensor([8.0, 1.0], dtype=torch.float64)
    sampler.observe(record([0, 1], loss.tolist()), CONTEXT)
    p = sampler.probabilities(1)
    t = torch.arange(2)
    estimate = (p * sampler.weight(t, 1).double() * loss).sum()
    assert float(estimate) == pytest.approx(float(loss.mean()), rel=1e-6)
    assert float(p[0]) > 0.8  # most draws are where the loss is large


def test_losses_of_zero_stay_uniform():
    sampler = LossSecondMoment(3, history_per_timestep=1)
    sampler.observe(record([0, 1, 2], [0.0, 0.0, 0.0]), CONTEXT)
    assert sampler.probabilities(1).tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"uniform": 1.5}, "uniform=1.5 must lie in [0, 1]"),
        ({"uniform": 0.0}, "uniform=0.0 must be > 0 with reweight=true"),
        ({"history_per_timestep": 0}, "history_per_timestep=0 must be an integer >= 1"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match="use") as error:
        LossSecondMoment(10, **arguments)
    assert words in str(error.value)
