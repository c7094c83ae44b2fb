"""The learned uncertainty: its start, its formula, its optimum, and that it trains with the model."""

from __future__ import annotations

import math

import pytest
import torch

from diffusion_lab.diffusion import EDM, ConstantEps, MinSNR, Uncertainty, Unit, cosine, linear

SNR = linear().snr.float()
LOSS = torch.rand(1000, 1, generator=torch.Generator().manual_seed(0)) + 0.1


@pytest.mark.parametrize("base", [EDM(), MinSNR(), Unit()], ids=lambda w: type(w).__name__)
def test_at_the_start_it_is_the_base(base):
    scale = SNR[:, None]
    assert torch.equal(Uncertainty(base)(LOSS, SNR, scale, 0).detach(), base(LOSS, SNR, scale, 0))


def filled() -> Uncertainty:
    weighting = Uncertainty(EDM())
    torch.nn.init.normal_(weighting.coefficients, std=0.05, generator=torch.Generator().manual_seed(1))
    return weighting


def test_loss_is_w_l_over_e_u_plus_u():
    weighting, scale = filled(), SNR[:, None]
    level = 1 / SNR.double().sqrt()
    features = 2**0.5 * torch.cos(level.log()[:, None] / 4 * weighting.frequencies + weighting.phases)
    u = (features * weighting.coefficients).sum(1).detach()
    assert u.abs().max() > 0.1
    w = 1 + level**2 / 0.25  # of EDM on the eps-loss
    torch.testing.assert_close(
        weighting(LOSS, SNR, scale, 0).detach().double(), w * LOSS[:, 0] / u.exp() + u, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(weighting.log_uncertainty(SNR).detach().double(), u, rtol=1e-4, atol=1e-4)


def test_u_is_added_once_to_a_row_of_several_heads():
    weighting = filled()
    one, two = SNR[:, None], SNR[:, None].expand(-1, 2)
    torch.testing.assert_close(
        weighting(torch.cat([LOSS / 4, 3 * LOSS / 4], 1), SNR, two, 0), weighting(LOSS, SNR, one, 0)
    )


def test_training_finds_the_logarithm_of_the_expected_loss():
    """The optimum of E[w l] e^-u + u is u = ln E[w l], at every noise level."""
    schedule = cosine()
    snr = schedule.snr.float()
    expected = torch.exp(2 * torch.tanh(schedule.log_snr / 4)).float()  # a smooth curve over three orders
    weighting = Uncertainty(ConstantEps())
    optimizer = torch.optim.Adam(weighting.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    for _ in range(1500):
        t = torch.randint(1000, (256,), generator=generator)
        loss = weighting(expected[t, None], snr[t], snr[t, None], 0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = weighting.log_uncertainty(snr) - expected.log()
    assert error[20:980].abs().max() < 0.1


def test_features_are_the_same_for_every_run_and_in_the_checkpoint():
    before = torch.random.get_rng_state()
    a, b = Uncertainty(EDM()), Uncertainty(EDM())
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(a.frequencies, b.frequencies) and torch.equal(a.phases, b.phases)
    assert {"coefficients", "frequencies", "phases"} <= set(a.state_dict())
    assert [name for name, _ in a.named_parameters()] == ["coefficients"]
    # f ~ N(0, (2 pi)^2): the standard deviation of 128 draws is within a fifth.
    assert float(a.frequencies.std()) == pytest.approx(2 * math.pi, rel=0.2)
    assert 0 <= a.phases.min() and a.phases.max() < 2 * math.pi


def test_normalisation_leaves_the_learned_part_alone():
    weighting, snr = filled(), linear().snr
    weighting.normalize = "mean1_uniform"
    weighting.refresh(snr, snr, torch.full_like(snr, 1e-3), 0)
    base = EDM().native_weight(snr, snr, 0)
    assert float(weighting.factor) == pytest.approx(1 / float(base.mean()), rel=1e-6)


def test_autocast_does_not_round_u():
    weighting = filled()
    with torch.autocast("cpu", torch.bfloat16):
        low = weighting(LOSS, SNR, SNR[:, None], 0)
    assert low.dtype == torch.float32 and torch.equal(low, weighting(LOSS, SNR, SNR[:, None], 0))
