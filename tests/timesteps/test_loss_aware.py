"""LossSecondMoment against the sequential algorithm and closed forms."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, LossSecondMoment, Position, StepRecord


def record(t, loss):
    t, loss = torch.tensor(t), torch.tensor(loss, dtype=torch.float64)
    return StepRecord(torch.zeros(len(t), 1, 1, 1), {}, t, loss, loss)


CONTEXT = Context(Position(0), Streams(0))


class Elements(TorchDispatchMode):
    """Counts the elements of the tensors that operations make; what they view or change counts nothing."""

    written = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        given = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        made = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in given
        self.written += result.numel() if made else 0
        return result


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


def trained(updates, steps=400, **arguments):
    """After 8 updates every one of 400 timesteps has a loss."""
    sampler = LossSecondMoment(steps, history_per_timestep=1, **arguments)
    generator = torch.Generator().manual_seed(1)
    for k in range(updates):
        t = torch.cat([(torch.arange(50) + 50 * k) % steps, torch.randint(steps, (9,), generator=generator)])
        sampler.observe(record(t.tolist(), (torch.rand(len(t), generator=generator) ** 4).tolist()), CONTEXT)
    return sampler


@pytest.mark.parametrize("uniform", [0.0, 0.1])
def test_draws_invert_the_cumulative_probabilities(uniform):
    """Against the sum over all timesteps, before and after every timestep has a loss."""
    u = torch.rand(4000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    u = torch.cat([u, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)])
    for updates in (7, 20):
        sampler = trained(updates, uniform=uniform, reweight=False)
        root = sampler.history.square().mean(1).sqrt()
        p = (1 - uniform) * root / root.sum() + uniform / 400 if updates > 7 else torch.full_like(root, 1 / 400)
        assert torch.allclose(sampler.probabilities(0), p, rtol=1e-12, atol=0)
        expected = torch.searchsorted(p.cumsum(0), u * p.sum(), right=True)
        assert torch.equal(sampler.quantile(u, 0), expected.clamp(max=399))


def test_an_update_does_not_depend_on_the_number_of_timesteps():
    """The elements that its operations make; the probabilities need one for each timestep."""
    counted = []
    for steps in (128, 16_384):
        sampler = LossSecondMoment(steps)
        with Elements() as elements:
            sampler.observe(record([*range(30), 3, 3], [1.0] * 32), CONTEXT)
        counted.append(elements.written)
    assert counted[0] == counted[1]
    with Elements() as elements:
        sampler.probabilities(0)
    assert elements.written > 16_384


def test_a_loaded_history_gives_the_same_draws():
    sampler, again = trained(20), LossSecondMoment(400, history_per_timestep=1)
    again.load_state_dict(sampler.state_dict())
    assert set(again.state_dict()) == {"history", "count"}  # as in earlier versions
    u = torch.rand(100, dtype=torch.float64)
    for one in (sampler, again):
        one.observe(record([5, 399, 5], [3.0, 2.0, 1.0]), CONTEXT)
    t = sampler.quantile(u, 0)
    assert torch.equal(t, again.quantile(u, 0)) and torch.equal(sampler.weight(t, 0), again.weight(t, 0))
    assert torch.equal(sampler.probabilities(0), again.probabilities(0))


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
