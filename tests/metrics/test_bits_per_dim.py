"""bits_per_dim of a model on test images, against a sum written out with NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.data import Digits, GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedSmall, linear
from diffusion_lab.metrics import BitsPerDim, Evaluation, SampleNoise

T = 50


class Optimal(nn.Module):
    """E[eps | x_t] of the data set, in closed form."""

    def __init__(self, source: GaussianMixture, schedule) -> None:
        super().__init__()
        self.source, self.schedule = source, schedule

    def forward(self, x_t, t):
        return self.source.optimal_eps(x_t, t, self.schedule).float()


@pytest.fixture
def gaussian():
    source = GaussianMixture(means=[0.1], variances=[0.04], image_size=4, num_images=64, num_test_images=40)
    source.value_range = (-1.0, 1.0)  # in which these lie
    schedule = linear(T)
    return ImageDataModule(source, batch_size=8), Denoiser(Optimal(source, schedule), schedule, Epsilon(), FixedSmall())


def bound_by_hand(source, denoiser, image, number: int, seed: int) -> float:
    """Ho et al. 2020, equation 5, in float64, from the betas, an image (C,H,W) and the noise of its number."""
    b = denoiser.schedule.betas.numpy()
    a = np.cumprod(1 - b)
    before = np.concatenate([[1.0], a[:-1]])
    small = b * (1 - before) / (1 - a)
    small[0] = small[1]

    def cdf(z):
        return 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))

    x0 = image.double().numpy()
    noise = SampleNoise(seed, [number], x0.shape)
    total = 0.5 * (a[-1] * (x0**2).mean() - a[-1] - math.log1p(-a[-1]))
    for t in range(T):
        eps = noise(T - 1 - t, torch.empty(1, *x0.shape)).double().numpy()[0]
        x_t = math.sqrt(a[t]) * x0 + math.sqrt(1 - a[t]) * eps
        answer = source.optimal_eps(torch.tensor(x_t)[None], torch.tensor([t]), denoiser.schedule).numpy()[0]
        guess = np.clip((x_t - math.sqrt(1 - a[t]) * answer) / math.sqrt(a[t]), -1, 1)
        if t == 0:
            s = math.sqrt(small[0])
            upper = np.where(x0 > 0.999, 1.0, cdf((x0 - guess + 1 / 255) / s))
            lower = np.where(x0 < -0.999, 0.0, cdf((x0 - guess - 1 / 255) / s))
            total -= np.log(np.maximum(upper - lower, 1e-12)).mean()
        else:
            c1 = b[t] * math.sqrt(before[t]) / (1 - a[t])
            total += (c1**2 * (x0 - guess) ** 2 / (2 * small[t])).mean()
    return total / math.log(2)


def measured(denoiser, data, images: int, **how):
    (result,) = Evaluation(images, metrics=[BitsPerDim()], **how)(denoiser, None, data, keep=0).results
    return result


def test_the_number_is_the_bound_written_out(gaussian):
    data, denoiser = gaussian
    count = 5
    result = measured(denoiser, data, count, batch_size=3, seed=4)
    bits, record = result.value, result.protocol
    split = data.source.test()
    chosen = torch.arange(count) * len(split) // count
    images, _ = data.conditions.of_images(split, chosen)
    numbered = zip(images, chosen.tolist(), strict=True)
    expected = np.mean([bound_by_hand(data.source, denoiser, image, i, seed=4) for image, i in numbered])
    assert bits == pytest.approx(expected, rel=1e-4)
    assert record["images"] == count and record["timesteps"] == T and record["seed"] == 4
    assert result.units == "bits/dim" and result.better == "lower"
    assert record["reference"]["split"] == "test" and record["reference"]["n"] == count


@pytest.mark.parametrize("bounds", [None, (-3.0, 1.0), (-1.0, 2.0)])
def test_values_beyond_those_to_which_estimates_are_clipped_are_refused(bounds):
    """The bound of Gaussians of variance 1 was 54 bits per dimension, 8.2 without clipping."""
    data = ImageDataModule(GaussianMixture([0.0], [1.0], image_size=4, num_images=64, num_test_images=40), batch_size=8)
    data.source.value_range = bounds
    with pytest.raises(ValueError, match=r"names=\[bits_per_dim\] must be measured on values in \[-1, 1\], to which"):
        Evaluation(4, metrics=[BitsPerDim()]).check(data)


def test_batches_change_nothing_and_seeds_do(gaussian):
    data, denoiser = gaussian
    one, other, seeded = (
        measured(denoiser, data, 6, batch_size=size, seed=seed).value for size, seed in ((6, 0), (4, 0), (6, 1))
    )
    assert one == pytest.approx(other, rel=1e-6) and seeded != one


def test_the_optimal_model_needs_fewer_bits_than_one_that_predicts_nothing(gaussian):
    data, denoiser = gaussian

    class Nothing(nn.Module):
        def forward(self, x_t, t):
            return torch.zeros_like(x_t)

    blind = Denoiser(Nothing(), denoiser.schedule, Epsilon(), FixedSmall())
    blind.train()
    best, worst = (measured(model, data, 20).value for model in (denoiser, blind))
    assert best < worst and blind.training


def test_an_evaluation_measures_it_alone_without_samples():
    data = ImageDataModule(Digits(), batch_size=8)  # no extractor, which sets of samples would need
    schedule = linear(T)

    class Never:
        def describe(self):
            return "never"

    class Zero(nn.Module):
        def forward(self, x_t, t):
            return torch.zeros_like(x_t)

    denoiser = Denoiser(Zero(), schedule, Epsilon(), FixedSmall())
    _, results, _ = Evaluation(num_samples=7, metrics=[BitsPerDim()])(denoiser, Never(), data, keep=0, ema_decay=0.9)
    assert [result.name for result in results] == ["bits_per_dim7"]
    assert results[0].protocol["ema_decay"] == 0.9 and results[0].value > 0
