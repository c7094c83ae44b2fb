"""Weightings: one and the same answer has one weighted loss and one gradient in every prediction."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import X0, Epsilon, MinSNR, Unit, V, Weighting, linear

PREDICTIONS = [Epsilon(), X0(), V()]
SNR = linear().snr


def weights(weighting: Weighting) -> list[torch.Tensor]:
    return [weighting.native_weight(SNR, p.native_scale(SNR), step=0) for p in PREDICTIONS]


def test_min_snr_has_the_published_form_for_each_prediction():
    eps, x0, v = weights(MinSNR(gamma=5.0))
    least = torch.minimum(SNR, torch.tensor(5.0))
    torch.testing.assert_close(eps, least / SNR)
    torch.testing.assert_close(x0, least)
    torch.testing.assert_close(v, least / (SNR + 1))


def test_min_snr_with_a_large_gamma_is_the_eps_loss():
    eps, _, v = weights(MinSNR(gamma=1e9))
    assert torch.equal(eps, torch.ones_like(SNR))
    torch.testing.assert_close(v, linear().alphas_cumprod)


def test_unit_leaves_every_native_loss_alone():
    loss = torch.rand(1000)
    for p in PREDICTIONS:
        assert torch.equal(Unit()(loss[:, None], SNR.float(), p.native_scale(SNR.float())[:, None], 0), loss)


def test_min_snr_gives_equal_gradients_for_converted_predictions():
    schedule = linear()
    t = torch.tensor([0, 10, 258, 600, 999])
    generator = torch.Generator().manual_seed(0)
    x0, eps, guess = (torch.randn(5, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    a = schedule.alphas_cumprod[t].reshape(-1, 1, 1, 1)
    alpha, sigma, snr = a.sqrt(), (1 - a).sqrt(), schedule.snr[t]
    x_t = alpha * x0 + sigma * eps
    gradients = []
    for p in PREDICTIONS:
        answer = guess.clone().requires_grad_()  # one x0 estimate, said in three ways
        out = p.target(answer, (x_t - alpha * answer) / sigma, alpha, sigma)
        loss = MinSNR()(*p.parts(out, x0, eps, alpha, sigma, snr)[:1], snr, p.native_scale(snr)[:, None], 0)
        gradients.append(torch.autograd.grad(loss.sum(), answer)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradients[2], gradients[1], rtol=1e-9, atol=1e-12)


def test_a_weighting_of_ones_own_needs_one_method():
    class TruncSNR(Weighting):
        def x0_weight(self, snr, step):
            return snr.clamp(min=1)

    got = TruncSNR()(torch.ones(2, 1), torch.tensor([4.0, 0.5]), torch.tensor([[4.0], [0.5]]), 0)
    assert got.tolist() == [1.0, 2.0]


def test_unit_says_that_it_has_no_x0_weight():
    with pytest.raises(NotImplementedError, match="native_weight"):
        Unit().x0_weight(SNR, 0)


@pytest.mark.parametrize("gamma", [0, -5.0, float("nan"), "5"])
def test_bad_gamma_is_named(gamma):
    with pytest.raises(ValueError, match=r"^gamma=.* must lie in \(0, inf\); use 5.0"):
        MinSNR(gamma)
