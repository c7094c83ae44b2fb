"""The difference in mean colour between a sample and its truth, for tasks with one (super-resolution)."""

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
    """Error of an image's mean colour in grey levels: |mean RGB - true mean RGB|_2 / sqrt(C) -> (n,) float64.

    It measures a tint of the whole image, which hardly changes the PSNR; 0 for errors of mean 0 in every channel.
    """
    shift = images.double().mean((2, 3)) - truths.double().mean((2, 3))
    return shift.norm(dim=1) / math.sqrt(images.shape[1])
