"""Coordinates of the lists that callbacks log: values over equal ranges of timesteps, or of the noise angle."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Coordinates = dict[str, list[float]]


def timestep_axes(log_snr: Tensor, bins: int) -> Coordinates:
    """Coordinates of `bins` equal ranges of timesteps, where t is in range floor(t bins/T).

    Args:
        log_snr: (T,) ln SNR of the schedule.
        bins: number of ranges, at most T.

    Returns:
        "timestep", the middle (i + 1/2) T/bins of range i, and "log_snr", the mean of ln SNR over its timesteps.
    """
    log_snr, steps = log_snr.detach().cpu().double(), len(log_snr)
    of = torch.arange(steps) * bins // steps
    mean = torch.zeros(bins, dtype=torch.float64).index_add_(0, of, log_snr) / of.bincount()
    return {"timestep": [(i + 0.5) * steps / bins for i in range(bins)], "log_snr": mean.tolist()}


def angle_axes(bins: int) -> Coordinates:
    """Coordinates of `bins` equal ranges of the noise angle phi = atan(sigma/alpha), from 0 to 90 degrees.

    Returns:
        "noise_angle", the middle of each range in degrees, and "log_snr" there: -2 ln tan(phi).
    """
    degrees = [(i + 0.5) * 90 / bins for i in range(bins)]
    return {"noise_angle": degrees, "log_snr": [-2 * math.log(math.tan(math.radians(phi))) for phi in degrees]}
