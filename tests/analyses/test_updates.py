"""Cosine, norm and noise scale of updates, where they are known."""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses.weights.continued_training import follow, noise_scale

D = 2000


def followed(make, gradient, copies=4, steps=120, warmup=60):
    """Updates of an optimizer under gradient(r, k) (D,)."""
    parameters = [nn.Parameter(torch.zeros(D, dtype=torch.float64)) for _ in range(copies)]
    optimizers = [make([one]) for one in parameters]

    def update(r, k):
        parameters[r].grad = gradient(r, k)
        optimizers[r].step()

    return follow([[one] for one in parameters], steps, update, warmup)


def noise(mean=0.0, deviation=1.0):
    generator = torch.Generator().manual_seed(0)
    return lambda r, k: mean + deviation * torch.randn(D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.9, 0.4, 0.0])
def test_momentum_on_white_noise(beta):
    """buf <- beta buf + g: the cosine is beta, and |u|^2 = lr^2 d / (1 - beta^2)."""
    updates = followed(lambda p: torch.optim.SGD(p, lr=0.1, momentum=beta), noise())
    assert updates.cosine.shape == (4, 119) and updates.norm.shape == (4, 120) and updates.gram.shape == (4, 4)
    assert updates.cosine[:, 60:].mean() == pytest.approx(beta, abs=4 / D**0.5)
    square = np.square(updates.norm[:, 60:]).mean()
    assert square == pytest.approx(0.01 * D / (1 - beta**2), rel=0.03)


@pytest.mark.parametrize(
    "beta", [0.8, pytest.param(0.9, marks=pytest.mark.slow), pytest.param(0.4, marks=pytest.mark.slow)]
)
def test_adam_on_white_noise(beta):
    """The second moment is nearly constant, so the cosine is beta and |u|^2 = lr^2 d (1 - beta)/(1 + beta)."""
    updates = followed(lambda p: torch.optim.Adam(p, lr=0.1, betas=(beta, 0.999)), noise(), steps=400)
    assert updates.cosine[:, 250:].mean() == pytest.approx(beta, abs=0.02)
    square = np.square(updates.norm[:, 250:]).mean()
    assert square == pytest.approx(0.01 * D * (1 - beta) / (1 + beta), rel=0.05)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_constant_gradient_has_cosine_1_and_no_noise(make):
    updates = followed(
        lambda p: make(p, lr=0.1), lambda r, k: torch.linspace(1, 2, D, dtype=torch.float64), steps=10, warmup=0
    )
    assert np.allclose(updates.cosine, 1, atol=1e-12)
    assert noise_scale(updates.norm, updates.gram) == pytest.approx((0, 0), abs=1e-12)


@pytest.mark.parametrize("beta", [0.9, 0.4])
def test_the_noise_scale_of_momentum_on_a_noisy_gradient(beta):
    """(1 - beta)/(1 + beta) d sigma^2/|mu|^2, within three of its own standard errors and of 5 %."""
    updates = followed(lambda p: torch.optim.SGD(p, lr=0.1, momentum=beta), noise(0.5, 2.0))
    expected = (1 - beta) / (1 + beta) * 4 / 0.25
    scale, error = noise_scale(updates.norm[:, 60:], updates.gram)
    assert error < 0.05 * expected
    assert abs(scale - expected) < 3 * error + 0.01 * expected


def test_gram_and_cosine_by_hand():
    """Two copies that move by (1, 0) then (1, 1), and by (0, 2) then (0, -2)."""
    moves = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [0.0, -2.0]]])
    places = [torch.zeros(2), torch.zeros(2)]
    updates = follow([[place] for place in places], 2, lambda r, k: places[r].add_(moves[r, k]))
    assert updates.gram.tolist() == [[1.25, 0], [0, 0]]  # the mean updates are (1, 1/2) and (0, 0)
    assert np.allclose(updates.norm, [[1, 2**0.5], [2, 2]])
    assert updates.cosine[:, 0] == pytest.approx([0.5**0.5, -1])


def test_no_signal_is_infinite_noise_and_no_update_is_no_number():
    ones, opposed = np.ones((3, 2)), np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert noise_scale(ones, opposed)[0] == float("inf") and np.isnan(noise_scale(ones, opposed)[1])
    assert np.isnan(noise_scale(0 * ones, 0 * opposed)).all()
