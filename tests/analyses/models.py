"""Models with known losses."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from diffusion_lab.data import GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.training import TrainedDiffusion


class Constant(nn.Module):
    """Answers one number everywhere."""

    def __init__(self, value=0.0, heads=1):
        super().__init__()
        self.value, self.heads = nn.Parameter(torch.tensor(value)), heads

    def forward(self, x, t):
        return self.value.expand(len(x), self.heads * x.shape[1], *x.shape[2:])


class Copy(nn.Module):
    """Answers its input times a number."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, t):
        return self.factor * x


class Optimal(nn.Module):
    """E[eps | x_t] of Gaussian data, plus an error."""

    def __init__(self, source, schedule, error=0.0):
        super().__init__()
        self.source, self.schedule, self.error = source, schedule, error

    def forward(self, x, t):
        return self.source.optimal_eps(x, t, self.schedule) + self.error


def source(images=64, size=4, **given):
    return GaussianMixture([0.5], [0.25], image_size=size, num_images=64, num_test_images=images, **given)


def of_seeds(make, count=2):
    """Models of runs that differ in their seed alone; `make` gets the seed and the folder."""
    models = [make(seed, folder=f"run-s{seed}") for seed in range(count)]
    for seed, model in enumerate(models):
        model.config.update({"seed": seed, "x": 1})
    return models


def half_width(values):
    """Half the width of Student's 95 % interval over two or three values, along the first axis."""
    n = len(values)
    return {2: 12.7062047, 3: 4.3026527}[n] * np.std(values, 0, ddof=1) / n**0.5


def trained(network, data, prediction=None, schedule=None, step=1, decay=None, folder="run", config_hash="a" * 64):
    denoiser = Denoiser(network, schedule or linear(50), prediction or Epsilon(), FixedLarge()).eval()
    return TrainedDiffusion(Path(folder), {}, config_hash, denoiser, ImageDataModule(data, batch_size=8), step, decay)
