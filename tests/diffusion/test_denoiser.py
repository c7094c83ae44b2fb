"""The denoiser: what reaches the network, what gets a gradient, and that nothing waits for the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    EDMScale,
    Epsilon,
    Estimate,
    FixedLarge,
    FixedSmall,
    LearnedRange,
    MinSNR,
    PathPosition,
    V,
    extract,
    linear,
    vlb_terms,
)

PREDICTIONS = [Epsilon(), X0(), V()]


class Network(nn.Module):
    """One 1x1 convolution that remembers what it was given."""

    def __init__(self, out_channels: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, out_channels, 1)
        self.dtype, self.seen = dtype, []

    def forward(self, x: torch.Tensor, t: torch.Tensor, label: torch.Tensor | None = None) -> torch.Tensor:
        self.seen.append((x, t, label))
        return self.layer(x).to(self.dtype)


def waits(work: Callable[[], object]) -> set[str]:
    """Operations that would wait for a GPU: values and index lists that are read back."""
    with torch.autograd.profiler.profile() as profile:
        work()
    done = {event.name for event in profile.function_events}
    assert done  # the profiler has seen something
    return done & {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    x0 = (torch.randint(0, 256, (4, 3, 5, 5), generator=generator) / 127.5) - 1
    return x0, torch.randn(4, 3, 5, 5, generator=generator), torch.tensor([0, 1, 500, 999])


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("variance", [FixedSmall(), LearnedRange()], ids=lambda v: type(v).__name__)
def test_training_and_sampling_never_wait_for_the_device(prediction, variance, batch):
    x0, eps, t = batch
    denoiser = Denoiser(Network(3 * (1 + variance.channels)), linear(), prediction, variance)

    def work():
        loss = denoiser.loss(x0, eps, t)
        snr = extract(denoiser.schedule.snr, t)
        (MinSNR()(loss.parts.loss, snr, loss.parts.scale, 0) + loss.vlb).sum().backward()
        denoiser.estimate(x0, t)
        denoiser.reverse(x0, t, clip=True)
        vlb_terms(denoiser, x0, eps, t)

    assert not waits(work)
    assert waits(lambda: x0.sum().item()) and waits(lambda: x0[x0 > 0])


def test_fixed_variance_has_no_bound_term_and_one_call(batch):
    network = Network(3)
    loss = Denoiser(network, linear(), Epsilon(), FixedLarge()).loss(*batch)
    assert len(network.seen) == 1
    assert loss.native.shape == (4,) and torch.equal(loss.vlb, torch.zeros(4))


def test_loss_is_the_square_error_at_x_t(batch):
    x0, eps, t = batch
    network, schedule = Network(3), linear()
    loss = Denoiser(network, schedule, Epsilon(), FixedLarge()).loss(x0, eps, t)
    a = schedule.alphas_cumprod[t].float().reshape(4, 1, 1, 1)
    x_t = a.sqrt() * x0 + (1 - a).sqrt() * eps
    torch.testing.assert_close(network.seen[0][0], x_t)
    torch.testing.assert_close(loss.native, (network.layer(x_t) - eps).square().mean((1, 2, 3)))


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=lambda p: type(p).__name__)
def test_hybrid_loss_trains_mean_and_variance_apart(prediction, batch):
    network = Network(6)
    loss = Denoiser(network, linear(), prediction, LearnedRange()).loss(*batch)
    for value, untouched in ((loss.vlb, slice(0, 3)), (loss.native, slice(3, 6))):
        gradient = torch.autograd.grad(value.sum(), network.layer.weight, retain_graph=True)[0]
        assert gradient[untouched].abs().max() == 0
        assert gradient.abs().max() > 0


def test_hybrid_loss_is_the_bound_times_its_weight(batch):
    network, schedule = Network(6), linear(2000)
    expected = vlb_terms(Denoiser(network, schedule, Epsilon(), LearnedRange()), *batch)
    for weight, factor in ((None, 2.0), (1.0, 1.0), (0.25, 0.25)):
        loss = Denoiser(network, schedule, Epsilon(), LearnedRange(weight)).loss(*batch)
        torch.testing.assert_close(loss.vlb, factor * expected)


def test_conditions_reach_the_network(batch):
    x0, eps, t = batch
    network, label = Network(3), torch.arange(4)
    denoiser = Denoiser(network, linear(), V(), FixedSmall())
    denoiser.loss(x0, eps, t, label=label)
    denoiser.estimate(x0, t, label=label)
    denoiser.reverse(x0, t, label=label)
    assert all(seen[2] is label for seen in network.seen) and len(network.seen) == 3


def test_answers_in_low_precision_are_converted_in_float32(batch):
    x0, eps, t = batch
    denoiser = Denoiser(Network(3, torch.bfloat16), linear(), Epsilon(), FixedSmall())
    assert denoiser.loss(x0, eps, t).native.dtype == torch.float32
    assert denoiser.estimate(x0, t).x0.dtype == torch.float32


def test_the_answer_is_the_output_that_the_loss_is_of(batch):
    x0, eps, t = batch
    network = Network(6)
    denoiser = Denoiser(network, linear(), V(), LearnedRange(), preconditioning=EDMScale(0.5), time=PathPosition())
    x_t, out = denoiser.schedule.perturb(x0, eps, t), denoiser.loss(x0, eps, t).out
    assert out is not None and torch.equal(denoiser.answer(x_t, t), out)
    assert not torch.equal(out, network.layer(x_t)[:, :3])


class Grey(Denoiser):
    """A model that always estimates grey images."""

    def estimate(self, x_t: torch.Tensor, t: torch.Tensor, **cond: torch.Tensor) -> Estimate:
        return Estimate(torch.zeros_like(x_t), x_t)


def test_an_estimate_of_ones_own_is_that_of_the_reverse_step_too(batch):
    x0, _, t = batch
    assert not Grey(Network(3), linear(), Epsilon()).reverse(x0, t).x0.any()
    with pytest.raises(ValueError, match="variance=LearnedRange must be a fixed one with Grey, which overrides estim"):
        Grey(Network(6), linear(), Epsilon(), LearnedRange())


def test_reverse_mean_is_computed_from_the_clipped_estimate(batch):
    x0, _, t = batch
    schedule = linear()
    denoiser = Denoiser(Network(3), schedule, Epsilon(), FixedSmall())
    estimate = denoiser.estimate(x0, t).x0
    assert estimate.abs().max() > 1
    reverse = denoiser.reverse(x0, t, clip=True)
    c1, c2 = (
        table[t].float().reshape(4, 1, 1, 1) for table in (schedule.posterior_mean_coef1, schedule.posterior_mean_coef2)
    )
    torch.testing.assert_close(reverse.x0, estimate.clamp(-1, 1))
    torch.testing.assert_close(reverse.mean, c1 * estimate.clamp(-1, 1) + c2 * x0)
    assert torch.equal(denoiser.reverse(x0, t).x0, estimate)


def test_respaced_denoiser_gives_the_network_original_timesteps(batch):
    x0, _, _ = batch
    network = Network(3)
    denoiser = Denoiser(network, linear(), Epsilon(), FixedSmall())
    kept = torch.tensor([0, 100, 500, 900])
    respaced = denoiser.respace(kept)
    assert respaced.num_timesteps == 4 and respaced.network is network
    respaced.estimate(x0, torch.tensor([0, 1, 2, 3]))
    assert network.seen[-1][1].tolist() == [0, 100, 500, 900]
    twice = respaced.respace(torch.tensor([1, 3]))
    twice.estimate(x0, torch.tensor([0, 1, 1, 0]))
    assert network.seen[-1][1].tolist() == [100, 900, 900, 100]
    # The estimate at a timestep does not depend on how the schedule is spaced.
    torch.testing.assert_close(
        twice.estimate(x0, torch.tensor([0, 1, 1, 0])).x0, denoiser.estimate(x0, torch.tensor([100, 900, 900, 100])).x0
    )


def test_only_the_network_is_in_the_state_dict():
    state = Denoiser(Network(3), linear(), Epsilon(), FixedSmall()).state_dict()
    assert list(state) == ["network.layer.weight", "network.layer.bias"]


def test_wrong_number_of_channels_is_named(batch):
    denoiser = Denoiser(Network(3), linear(), Epsilon(), LearnedRange())
    with pytest.raises(ValueError, match=r"^out_channels=3 must be 6: 1 per image channel .* and 1 for the variance"):
        denoiser.loss(*batch)
