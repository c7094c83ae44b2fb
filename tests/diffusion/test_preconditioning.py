"""What the network is shown, and that nothing else sees it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    Epsilon,
    FDMScale,
    FixedLarge,
    LearnedRange,
    NoiseSchedule,
    Plain,
    Preconditioning,
    V,
    cosine,
    linear,
    vlb_terms,
)


class Network(nn.Module):
    """A fixed answer; remembers what it was shown."""

    def __init__(self, answer: torch.Tensor) -> None:
        super().__init__()
        self.answer, self.seen = answer, []

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return self.answer


T = torch.tensor([0, 1, 500, 999])


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    x0 = (torch.randint(0, 256, (4, 3, 5, 5), generator=generator) / 127.5) - 1
    return x0, torch.randn(4, 3, 5, 5, generator=generator), T


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0])
def test_scale_is_the_papers_mean_over_the_schedules(multiplier):
    # S(t) = exp(-m B)(1 + m B), with the host's integral of beta B = -ln A; the mean of x_t is sqrt(A).
    schedule = cosine(4000)
    a = schedule.alphas_cumprod.tolist()
    scale = FDMScale(multiplier).input_scale(schedule)
    assert scale.dtype == torch.float64
    for t in (0, 1, 1000, 1983, 3000, 3998, 3999):
        B = -math.log(a[t])
        mean = math.exp(-multiplier * B) * (1 + multiplier * B)
        assert scale[t].item() == pytest.approx(mean / math.sqrt(a[t]), rel=1e-9)


def test_input_is_bounded_for_multiplier_one_alone():
    schedule = cosine(4000)
    a, s = schedule.alphas_cumprod, schedule.noise_level
    S = {m: FDMScale(m).input_scale(schedule) * a.sqrt() for m in (0.5, 1.0, 2.0)}
    assert float((S[1.0] * s).max()) <= 1.21
    # Pixels of variance 1: S sqrt(1 + s^2) = S/sqrt(A), whose maximum is 2/sqrt(e), at A = 1/e.
    assert float((S[1.0] * (1 + s**2).sqrt()).max()) == pytest.approx(2 / math.sqrt(math.e), rel=1e-6)
    assert float((S[0.5] * s)[-1]) == pytest.approx(1 - 0.5 * math.log(float(a[-1])), rel=1e-6)
    assert float((S[0.5] * s)[-1]) > 12 and float((S[2.0] * s)[-1]) < 1e-10


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()], ids=lambda p: type(p).__name__)
def test_the_network_alone_is_shown_the_scaled_input(prediction, batch):
    x0, eps, t = batch
    schedule = linear()
    answer = torch.randn(4, 6, 5, 5, generator=torch.Generator().manual_seed(1))
    scaled = Denoiser(Network(answer), schedule, prediction, LearnedRange(), preconditioning=FDMScale(2.0))
    plain = Denoiser(Network(answer), schedule, prediction, LearnedRange())
    x_t = schedule.perturb(x0, eps, t)
    calls = [
        lambda d: d.loss(x0, eps, t)[:2],
        lambda d: d.estimate(x_t, t),
        lambda d: d.reverse(x_t, t, clip=True),
        lambda d: (vlb_terms(d, x0, eps, t),),
    ]
    factor = FDMScale(2.0).input_scale(schedule)[t].float().reshape(-1, 1, 1, 1)
    for call in calls:
        # The network's answer is the same, so everything computed from it and from x_t must be.
        for got, expected in zip(call(scaled), call(plain), strict=True):
            assert torch.equal(got, expected)
        assert torch.equal(scaled.network.seen[-1], factor * x_t)
        assert torch.equal(plain.network.seen[-1], x_t)


def test_plain_passes_x_t_itself():
    network, x = Network(torch.zeros(1, 1, 2, 2)), torch.randn(1, 1, 2, 2)
    for preconditioning in (None, Plain()):
        Denoiser(network, linear(), Epsilon(), FixedLarge(), preconditioning=preconditioning).estimate(x, T[:1])
        assert network.seen[-1] is x


def test_respaced_denoiser_shows_the_same_input():
    network, kept = Network(torch.zeros(3, 1, 2, 2)), torch.tensor([0, 400, 999])
    denoiser = Denoiser(network, cosine(), Epsilon(), FixedLarge(), preconditioning=FDMScale())
    respaced = denoiser.respace(kept)
    x = torch.randn(3, 1, 2, 2)
    denoiser.estimate(x, kept)
    respaced.estimate(x, torch.arange(3))
    torch.testing.assert_close(network.seen[1], network.seen[0], rtol=1e-6, atol=0)
    twice = respaced.respace(torch.tensor([1, 2]))
    twice.estimate(x, torch.tensor([0, 1, 1]))
    torch.testing.assert_close(network.seen[2][1:2], network.seen[0][2:] / x[2:] * x[1:2], rtol=1e-5, atol=0)


def test_a_cast_of_the_module_leaves_the_scale_in_float64():
    network = Network(torch.zeros(4, 1, 2, 2))
    denoiser = Denoiser(network, cosine(), Epsilon(), FixedLarge(), preconditioning=FDMScale())
    x = torch.randn(4, 1, 2, 2)
    denoiser.estimate(x, T)
    denoiser.bfloat16().estimate(x, T)
    assert torch.equal(network.seen[0], network.seen[1])
    assert "input_scale" not in "".join(denoiser.state_dict())


def test_a_scale_of_ones_own_needs_one_method():
    class Normalized(Preconditioning):
        """For pixels of standard deviation 1/2."""

        def input_scale(self, schedule: NoiseSchedule) -> torch.Tensor:
            a = schedule.alphas_cumprod
            return (0.25 * a + 1 - a).rsqrt()

    network = Network(torch.zeros(2, 1, 64, 64))
    denoiser = Denoiser(network, linear(), Epsilon(), FixedLarge(), preconditioning=Normalized())
    x0, eps = 0.5 * torch.randn(2, 1, 64, 64), torch.randn(2, 1, 64, 64)
    denoiser.loss(x0, eps, torch.tensor([3, 300]))
    assert network.seen[0].std((1, 2, 3)).tolist() == pytest.approx([1, 1], rel=0.05)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("inf")])
def test_bad_multiplier_is_named(multiplier):
    with pytest.raises(ValueError, match=r"^multiplier=.* must lie in \(0, inf\); use 1.0"):
        FDMScale(multiplier)
