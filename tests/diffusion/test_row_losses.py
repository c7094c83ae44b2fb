"""Losses of a row that are functions of its squared error: their formulas, limits, gradients, and what they leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.diffusion import Adaptive, MinSNR, PseudoHuber, RowLoss, Uncertainty, Unit, V, cosine
from tests.auxiliary.small import images, module, stepped

D = 48  # numbers of an image
RECORD: Any = SimpleNamespace(x0=torch.zeros(3, 3, 4, 4))
SNR = cosine().snr[[10, 500, 900]]
SCALE = V().native_scale(SNR)[:, None]
LOSS = torch.tensor([[1e-9], [0.02], [3.0]], dtype=torch.float64)


def rows(weighting: RowLoss, loss: Tensor = LOSS) -> Tensor:
    return weighting(loss, SNR, SCALE, 0, RECORD)


def test_pseudo_huber_is_the_published_function_of_the_error() -> None:
    error = (D * LOSS[:, 0]).sqrt()  # |e|
    c = 0.00054 * D**0.5
    expected = (error**2 + c**2).sqrt() - c
    torch.testing.assert_close(rows(PseudoHuber(Unit())), expected, rtol=1e-9, atol=0)
    assert rows(PseudoHuber(Unit()))[2] == pytest.approx(float(error[2]), rel=1e-3)  # far above c
    torch.testing.assert_close(rows(PseudoHuber(Unit(), a=1e4)), error**2 / 2e4 / D**0.5, rtol=1e-8, atol=0)


def test_the_base_weights_it_as_it_weights_the_squared_error() -> None:
    weight = SNR.clamp(max=5.0) / SCALE[:, 0]
    torch.testing.assert_close(rows(PseudoHuber(MinSNR())), weight * rows(PseudoHuber(Unit())))
    torch.testing.assert_close(
        rows(PseudoHuber(Uncertainty(Unit()))).detach(), rows(PseudoHuber(Unit())), check_dtype=False
    )


@pytest.mark.parametrize(
    ("p", "same"), [(1.0, lambda s: (s + 0.01).log()), (0.5, lambda s: 2 * (s + 0.01).sqrt()), (0.0, lambda s: s)]
)
def test_the_gradient_of_adaptive_is_that_of_a_function(p: float, same: Any) -> None:
    loss = LOSS.clone().requires_grad_()
    (found,) = torch.autograd.grad(rows(Adaptive(Unit(), p=p), loss).sum(), loss)
    (expected,) = torch.autograd.grad(same(D * loss).sum(), loss)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, D * torch.ones_like(found)) or p == 0  # negative control
    torch.testing.assert_close(rows(Adaptive(Unit(), p=p)), (D * LOSS / (D * LOSS + 0.01) ** p)[:, 0])


@pytest.mark.parametrize("make", [PseudoHuber, Adaptive])
def test_the_logged_loss_stays_the_mean_square_error(make: Any) -> None:
    with_it, usual = (stepped(module(weighting=weighting))["record"] for weighting in (make(Unit()), Unit()))
    assert torch.equal(with_it.loss, usual.loss) and torch.equal(usual.objective, usual.loss)
    numbers = images()[0].numel()
    torch.testing.assert_close(with_it.objective, make(Unit()).of_square(numbers * usual.loss, numbers))


def test_one_normalisation_is_that_of_the_outer_weighting() -> None:
    with pytest.raises(ValueError, match="base.normalize=mean1_uniform must be none"):
        PseudoHuber(MinSNR(normalize="mean1_uniform"))
    weighting = PseudoHuber(MinSNR(), normalize="mean1_uniform")
    snr = cosine().snr
    weighting.refresh(snr, V().native_scale(snr), torch.ones_like(snr), 0)
    assert float(weighting.factor) != 1
    torch.testing.assert_close(rows(weighting), rows(PseudoHuber(MinSNR())) * weighting.factor)
