"""The hue error of a model's samples, as `metrics.hue_error` where each has a truth, or of their mean colour."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.metrics.sample_metrics import hue_error


def paired_hue(samples: Tensor, truths: Tensor) -> tuple[float, float]:
    """Mean hue error of (n,C,H,W) bytes to their truths, and its standard error over the samples."""
    errors = hue_error(samples, truths)
    return float(errors.mean()), float(errors.std() / math.sqrt(len(errors)))


def mean_hue(samples: Tensor, images: Tensor) -> tuple[float, float]:
    """|mean colour of the samples - that of the images|_2 / sqrt(C) in grey levels, and its standard error.

    The hue error of two sets without pairs, (n,C,H,W) and (m,C,H,W) bytes; a tint that all samples share. The standard
    error is that of the difference in the direction in which it lies.
    """
    colours = [some.double().mean((2, 3)) for some in (samples, images)]
    shift = colours[0].mean(0) - colours[1].mean(0)
    size = shift.norm()
    direction = shift / size if size > 0 else torch.zeros_like(shift)
    variance = sum(float((some @ direction).var()) / len(some) for some in colours)
    return float(size) / math.sqrt(len(shift)), math.sqrt(variance / len(shift))
