"""Classifier-free guidance against its formula."""

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import X0, Denoiser, Epsilon, FixedLarge, Guidance, LearnedRange, V, linear

NULL = 4


class Linear(nn.Module):
    """out = (label + 1) x + t / 10, with as many channels as asked for; counts its rows."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.times, self.rows = times, []

    def forward(self, x, t, label, **cond):
        self.rows.append(len(x))
        out = (label + 1.0)[:, None, None, None] * x + t[:, None, None, None] / 10
        return torch.cat([out * (k + 1) for k in range(self.times)], dim=1) + sum(cond.values(), torch.zeros(()))


def batch():
    torch.manual_seed(0)
    return torch.randn(5, 2, 3, 3), torch.tensor([1, 7, 20, 30, 49]), torch.tensor([0, 1, 2, 3, 0])


def test_the_formula_in_one_call():
    x, t, label = batch()
    network = Linear()
    out = Guidance(network, 2.5, NULL)(x, t, label)
    plain, null = network(x, t, label), network(x, t, torch.full_like(label, NULL))
    torch.testing.assert_close(out, null + 2.5 * (plain - null))
    assert network.rows[0] == 10


def test_scale_one_is_no_guidance_and_scale_zero_is_no_label():
    x, t, label = batch()
    network = Linear()
    torch.testing.assert_close(Guidance(network, 1.0, NULL)(x, t, label), network(x, t, label))
    null = network(x, t, torch.full_like(label, NULL))
    torch.testing.assert_close(Guidance(network, 0.0, NULL)(x, t, label), null)


def test_the_variance_is_that_of_the_labelled_answer():
    x, t, label = batch()
    network = Linear(times=2)
    out = Guidance(network, 3.0, NULL, heads=1)(x, t, label)
    plain = network(x, t, label)
    assert torch.equal(out[:, 2:], plain[:, 2:]) and not torch.equal(out[:, :2], plain[:, :2])


@pytest.mark.parametrize("heads", [1, 2])
def test_of_some_channels_the_others_are_the_labelled_answer(heads):
    """As in DiT's code: the variance and the last channel of each head stay as they are."""
    x, t, label = batch()
    network = Linear(times=heads + 1)
    out, plain = Guidance(network, 3.0, NULL, heads, channels=1)(x, t, label), network(x, t, label)
    every = Guidance(network, 3.0, NULL, heads)(x, t, label)
    for channel in range(2 * (heads + 1)):
        guided = channel < 2 * heads and channel % 2 == 0
        assert torch.equal(out[:, channel], (every if guided else plain)[:, channel])
    assert not torch.allclose(every[:, 1], plain[:, 1])
    assert all(torch.equal(Guidance(network, 3.0, NULL, heads, channels=n)(x, t, label), every) for n in (2, 3))


def test_no_guided_channel_is_refused():
    with pytest.raises(ValueError, match=r"^channels=0 must be an integer >= 1; use 3 as DiT"):
        Guidance(Linear(), 3.0, NULL, channels=0)


def test_other_conditions_reach_both_answers():
    x, t, label = batch()
    extra = torch.rand(5, 1, 1, 1)
    network = Linear()
    both = Guidance(network, 2.0, NULL)(x, t, label, shift=extra)
    torch.testing.assert_close(both, Guidance(network, 2.0, NULL)(x, t, label) + extra)


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()], ids=lambda p: type(p).__name__)
def test_guiding_eps_x0_or_v_is_the_same_as_guiding_the_estimates(prediction):
    x, t, label = batch()
    denoiser = Denoiser(Linear(), linear(50), prediction, FixedLarge(), null_label=NULL).double()
    x = x.double()
    guided = denoiser.guided(1.7).estimate(x, t, label=label)
    plain, null = denoiser.estimate(x, t, label=label), denoiser.estimate(x, t, label=torch.full_like(label, NULL))
    for got, with_label, without in zip(guided, plain, null, strict=True):
        # the network answers in float32
        torch.testing.assert_close(got, without + 1.7 * (with_label - without), rtol=1e-4, atol=1e-3)


def test_a_respaced_model_stays_guided_and_its_original_is_not_touched():
    x, _, label = batch()
    denoiser = Denoiser(Linear(times=2), linear(50), Epsilon(), LearnedRange(), null_label=NULL)
    kept = torch.tensor([0, 10, 30, 49])
    t = torch.tensor([0, 1, 2, 3, 3])
    one = denoiser.guided(2.0).respace(kept).reverse(x, t, label=label)
    other = denoiser.respace(kept).guided(2.0).reverse(x, t, label=label)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(one.mean, denoiser.respace(kept).reverse(x, t, label=label).mean)
    assert isinstance(denoiser.network, Linear)


def test_a_model_that_always_had_its_labels_is_refused():
    with pytest.raises(ValueError, match=r"^scale=2.0 must be left out.*label_dropout=0.1"):
        Denoiser(Linear(), linear(50), Epsilon(), FixedLarge()).guided(2.0)
    with pytest.raises(ValueError, match=r"^scale=-1 must lie in \[0, inf\)"):
        Guidance(Linear(), -1, NULL)
