"""The exact denoiser of a finite set of images against closed forms."""

import math

import pytest
import torch

from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import empirical_floor, linear
from diffusion_lab.streams import Streams

SNR = torch.tensor([1e-6, 1e-2, 0.3, 1.0, 7.0, 1e2, 1e4], dtype=torch.float64)


def drawn(*shape, position=0):
    return Streams(3).normal(shape, "test", position)


def test_of_one_image_nothing_is_uncertain():
    x0 = drawn(1, 4, 4)
    assert empirical_floor(x0, drawn(1, 4, 4, position=1), SNR, [x0[None]]).tolist() == [0.0] * len(SNR)


def test_two_images_have_a_logistic_posterior():
    """P(x_2 | x_t) = p is logistic in the difference of the log densities; the variance is p (1-p) |d|^2 / D."""
    x, eps = drawn(2, 1, 2, 2).double(), drawn(1, 2, 2, position=1).double()
    found = empirical_floor(x[0], eps, SNR, [x])
    for snr, value in zip(SNR.tolist(), found.tolist(), strict=True):
        alpha, sigma = math.sqrt(snr / (1 + snr)), math.sqrt(1 / (1 + snr))
        x_t = alpha * x[0] + sigma * eps
        first, second = (-((x_t - alpha * one).square().sum() / (2 * sigma**2)).item() for one in x)
        p = torch.tensor(second - first, dtype=torch.float64).sigmoid().item()
        assert value == pytest.approx(p * (1 - p) * (x[1] - x[0]).square().mean().item(), rel=1e-9, abs=1e-15)


def test_chunks_and_copies_of_the_whole_set_change_nothing():
    x, eps = drawn(37, 1, 3, 3), drawn(1, 3, 3, position=1)
    whole = empirical_floor(x[4], eps, SNR, [x])
    torch.testing.assert_close(empirical_floor(x[4], eps, SNR, x.split(5)), whole, rtol=1e-12, atol=1e-300)
    torch.testing.assert_close(empirical_floor(x[4], eps, SNR, x.flip(0).split(36)), whole, rtol=1e-10, atol=1e-300)
    torch.testing.assert_close(empirical_floor(x[4], eps, SNR, [x, x]), whole, rtol=1e-10, atol=1e-300)
    # Negative control: one image twice is another distribution.
    assert not torch.allclose(empirical_floor(x[4], eps, SNR, [x, x[:1]]), whole, rtol=1e-3)


def test_a_logit_beyond_floating_point_is_no_overflow():
    x0, eps = torch.zeros(1, 4, 4), torch.full((1, 4, 4), 100.0)
    found = empirical_floor(x0, eps, torch.tensor([1.0]), [x0[None], x0[None] + 50])
    assert torch.isfinite(found).all()


def test_more_images_of_gaussian_data_bring_the_floor_to_the_closed_form():
    """From below, because the smallest error is concave in the distribution; two dimensions fill quickly."""
    schedule = linear(50)
    data = GaussianMixture([0.5], [0.25], channels=2, image_size=1)
    closed, missing = data.loss_floor(schedule) / schedule.snr, []
    for n, rows, sets in ((3, 3, 300), (30, 30, 10), (1500, 300, 1)):
        values = []
        for k in range(sets):
            x0, eps = data.sample(n, 100 + k)[0], drawn(rows, 2, 1, 1, position=k)
            values += [empirical_floor(x0[i], eps[i], schedule.snr, x0.split(1000)) for i in range(rows)]
        missing.append(1 - torch.stack(values).mean(0) / closed)
    few, some, many = missing
    assert (few > some + 0.02).all() and (some > 0.01).all()
    assert (many.abs() < 0.1).all()
