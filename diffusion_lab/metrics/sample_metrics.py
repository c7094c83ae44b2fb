"""Metrics of the samples themselves, which compare no feature sets: PSNR, hue error, agreement, variance.

The variance of a pixel over the samples measures their diversity:

    mean over pixels d of  1/(N - 1) sum_i (x_id - mean_d)^2,   x in [-1, 1]

Neither direction is better: it is best when it is that of the data. It is 0 if all samples are equal, smaller than that
of the data for a collapsed or blurring model, and larger for noise, so that it falls while a new model learns. Use it
together with a distance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.generated import Batch
from diffusion_lab.metrics.metric import Given, Metric, SampleMetric

# Mean square error of rounding to bytes: used as the minimum, so that the PSNR of equal images is finite.
_ROUNDING = 1 / 12
_ROWS = 4096  # rows at a time, so that their float64 copy stays small


class PSNR(SampleMetric):
    """Peak signal-to-noise ratio of the samples to their truths (`psnr`), mean over the samples."""

    name, better, units = "psnr", "higher", "dB"
    needs = frozenset({"pairs"})

    def of(self, batch: Batch) -> Tensor | None:
        return None if batch.truths is None else psnr(batch.samples, batch.truths)


def psnr(images: Tensor, truths: Tensor, least_mse: float = _ROUNDING) -> Tensor:
    """Peak signal-to-noise ratio in dB, 10 log10(255^2 / mse), of bytes (n,C,H,W) and (n,C,H,W) -> (n,) float64.

    At most 58.9 by default: since bytes are rounded, the square error is taken to be at least `least_mse` = 1/12. With
    `least_mse` = 0, equal images have an infinite one.
    """
    mse = (images.double() - truths.double()).square().flatten(1).mean(1)
    return 10 * torch.log10(255**2 / mse.clamp(min=least_mse))


class HueError(SampleMetric):
    """Error of the mean colour of the samples against their truths (`hue_error`), mean over the samples."""

    name, better, compared_by, units = "hue_error", "lower", "ratio", "grey levels"
    needs = frozenset({"pairs"})

    def of(self, batch: Batch) -> Tensor | None:
        return None if batch.truths is None else hue_error(batch.samples, batch.truths)


def hue_error(images: Tensor, truths: Tensor) -> Tensor:
    """Error of an image's mean colour in grey levels: |mean RGB - true mean RGB|_2 / sqrt(C) -> (n,) float64.

    It measures a tint of the whole image, which hardly changes the PSNR; 0 for errors of mean 0 in every channel.
    """
    shift = images.double().mean((2, 3)) - truths.double().mean((2, 3))
    return shift.norm(dim=1) / math.sqrt(images.shape[1])


class Agreement(SampleMetric):
    """Share of the samples whose largest logit is that of the class on which they were conditioned, in [0, 1].

    For a conditional model on data with the extractor's classes.
    """

    name, better = "agreement", "higher"
    needs = frozenset({"classes"})

    def of(self, batch: Batch) -> Tensor | None:
        if batch.classes is None or batch.logits is None:
            return None
        return (batch.logits.argmax(1) == batch.classes.to(batch.logits.device)).double()


class SampleVariance(Metric):
    """Variance of a pixel over N >= 2 samples, in [0, N/(N - 1)]; needs no feature extractor."""

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
