"""The variance of a pixel over the samples, a measure of their diversity.

    mean over pixels d of  1/(N - 1) sum_i (x_id - mean_d)^2,   x in [-1, 1]

Neither direction is better: it is best when it is that of the data. It is 0 if all samples are equal, smaller than that
of the data for a collapsed or blurring model, and larger for noise, so that it falls while a new model learns. Use it
together with a distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.metric import Given, Metric

_ROWS = 4096  # rows at a time, so that their float64 copy stays small


class SampleVariance(Metric):
    """Over N >= 2 samples, in [0, N/(N - 1)]; needs no feature extractor."""

    name, better = "sample_variance", "neither"
    needs = frozenset({"samples"})

    def __call__(self, given: Given) -> float:
        return sample_variance(given.samples)

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        check_integer("num_samples", num_samples, 2, "use 1000 for a variance")


def sample_variance(images: Tensor) -> float:
    """The formula above for images (N,C,H,W) uint8."""
    mean = sum(rows.double().sum(0) for rows in images.split(_ROWS)) / len(images)
    squares = torch.stack([(rows.double() - mean).square().sum(0) for rows in images.split(_ROWS)]).sum(0)
    return float((squares / (len(images) - 1)).mean()) / 127.5**2
