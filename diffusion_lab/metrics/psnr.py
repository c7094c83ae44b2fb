"""The peak signal-to-noise ratio of a sample to its truth, for tasks with one (super-resolution)."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.metrics.generated import Batch
from diffusion_lab.metrics.metric import SampleMetric

# Mean square error of rounding to bytes: used as the minimum, so that the PSNR of equal images is finite.
_ROUNDING = 1 / 12


class PSNR(SampleMetric):
    """Mean over the samples of `psnr`."""

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
