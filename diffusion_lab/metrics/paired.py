"""A sample against its own true image, where the task gives one (super-resolution)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PAIRED = ("psnr", "hue_error")
# Mean square error of rounding to bytes: equal images count as this far apart, so that a mean of PSNRs stays finite.
_ROUNDING = 1 / 12


def psnr(images: Tensor, truths: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, 10 log10(255^2 / mse), of bytes (n,C,H,W) and (n,C,H,W) -> (n,) float64.

    At most 58.9: bytes are rounded, so their square error is taken to be at least 1/12.
    """
    mse = (images.double() - truths.double()).square().flatten(1).mean(1)
    return 10 * torch.log10(255**2 / mse.clamp(min=_ROUNDING))


def hue_error(images: Tensor, truths: Tensor) -> Tensor:
    """How far an image's mean colour is off, in grey levels: |mean RGB - true mean RGB|_2 / sqrt(C) -> (n,) float64.

    A tint of the whole image, which the PSNR hardly sees; 0 for errors of mean 0 in every channel.
    """
    shift = images.double().mean((2, 3)) - truths.double().mean((2, 3))
    return shift.norm(dim=1) / math.sqrt(images.shape[1])


def paired_values(images: Tensor, truths: Tensor) -> Tensor:
    """(n,2) float64: the columns of `PAIRED`."""
    return torch.stack([psnr(images, truths), hue_error(images, truths)], dim=1)
