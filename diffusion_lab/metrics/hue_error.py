"""How far the mean colour of a sample is off its truth's, where the task gives one (super-resolution)."""

from __future__ import annotations

import math

from torch import Tensor

from diffusion_lab.metrics.generated import Batch
from diffusion_lab.metrics.metric import SampleMetric


class HueError(SampleMetric):
    """Mean over the samples of `hue_error`."""

    name, better, units = "hue_error", "lower", "grey levels"
    needs = frozenset({"pairs"})

    def of(self, batch: Batch) -> Tensor | None:
        return None if batch.truths is None else hue_error(batch.samples, batch.truths)


def hue_error(images: Tensor, truths: Tensor) -> Tensor:
    """How far an image's mean colour is off, in grey levels: |mean RGB - true mean RGB|_2 / sqrt(C) -> (n,) float64.

    A tint of the whole image, which the PSNR hardly sees; 0 for errors of mean 0 in every channel.
    """
    shift = images.double().mean((2, 3)) - truths.double().mean((2, 3))
    return shift.norm(dim=1) / math.sqrt(images.shape[1])
