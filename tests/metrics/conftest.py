"""What the tests of the metrics share."""

import pytest
import torch
from torch import nn

from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import ClassifierFeatures


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """Reference statistics of tests stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def digits():
    return ImageDataModule(Digits(), batch_size=16, features=ClassifierFeatures("digits"))


class Memory(nn.Module):
    """The exact epsilon of the empirical distribution of some images: E[x0 | x_t] is a softmax over them."""

    def __init__(self, images, schedule):
        super().__init__()
        self.x0 = images.float().flatten(1) / 127.5 - 1
        self.alpha_bar = schedule.alphas_cumprod.float()

    def forward(self, x_t, t):
        a = self.alpha_bar[t][:, None]
        flat = x_t.flatten(1)
        nearness = (flat @ self.x0.T * a.sqrt() - 0.5 * a * self.x0.square().sum(1)) / (1 - a)
        mean = nearness.softmax(1) @ self.x0
        return ((flat - a.sqrt() * mean) / (1 - a).sqrt()).view(x_t.shape)


@pytest.fixture(scope="session")
def perfect(digits):
    """A model that has learned the training images by heart."""
    schedule = linear(1000)
    return Denoiser(Memory(digits.source.train().images, schedule), schedule, Epsilon(), FixedLarge())


class Shrink(nn.Module):
    """eps = x_t / 2 + label: elementwise, so a row's result cannot depend on the other rows even in the last bit."""

    def forward(self, x_t, t, label=None):
        return x_t / 2 if label is None else x_t / 2 + 0.1 * label[:, None, None, None]


@pytest.fixture(scope="session")
def elementwise():
    return Denoiser(Shrink(), linear(50), Epsilon(), FixedLarge())


@pytest.fixture
def rows():
    """rows(n, dim, seed) -> normal features."""
    return lambda n, dim, seed=0: torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
