"""Two samplers, one after the other."""

import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, LossSecondMoment, Position, Power, StepRecord, Switch, Uniform

ROWS = torch.zeros(64, 1, 2, 2)


def at(step):
    return Context(Position(step), Streams(0))


@pytest.mark.parametrize(("step", "active"), [(0, 0), (9, 0), (10, 1), (1000, 1)])
def test_each_phase_is_the_sampler_of_its_steps_to_the_bit(step, active):
    phases = [Power(100, power=3.0, reweight=True), Uniform(100)]
    sampler = Switch(*phases, first_steps=10)
    drawn, alone = sampler.draw(ROWS, at(step)), phases[active].draw(ROWS, at(step))
    assert torch.equal(drawn.t, alone.t) and torch.equal(drawn.weight, alone.weight)
    assert torch.equal(sampler.probabilities(step), phases[active].probabilities(step))
    assert not torch.equal(drawn.t, phases[1 - active].draw(ROWS, at(step)).t)


def test_only_the_sampler_that_draws_observes():
    first, then = LossSecondMoment(4, history_per_timestep=1), LossSecondMoment(4, history_per_timestep=1)
    sampler = Switch(first, then, first_steps=5)
    t = torch.tensor([0, 1, 2, 3])
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0])
    record = StepRecord(ROWS[:4], {}, t, losses, losses)
    sampler.observe(record, at(4))
    flat = torch.full((4,), 0.25).double()
    assert not torch.allclose(first.probabilities(5), flat) and torch.allclose(then.probabilities(5), flat)
    sampler.observe(record, at(5))
    assert torch.equal(first.probabilities(6), then.probabilities(6))


def test_different_numbers_of_timesteps_are_refused():
    with pytest.raises(ValueError, match=r"then.num_timesteps=50 must equal first.num_timesteps=100"):
        Switch(Uniform(100), Uniform(50), first_steps=1)
