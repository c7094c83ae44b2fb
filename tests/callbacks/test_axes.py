"""Coordinates of logged lists, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from diffusion_lab.callbacks.training_log import angle_axes, timestep_axes


def test_timesteps_and_log_snr_of_ranges() -> None:
    """T = 10 in 4 ranges: floor(4 t/10) puts 3, 2, 3, 2 timesteps into them; log SNR falls by 2 from 9."""
    axes = timestep_axes(9 - 2 * torch.arange(10, dtype=torch.float64), 4)
    assert axes == {"timestep": [1.25, 3.75, 6.25, 8.75], "log_snr": [7.0, 2.0, -3.0, -8.0]}


def test_noise_angles() -> None:
    """alpha = cos phi and sigma = sin phi, so at 45 degrees SNR is 1 and at 30 degrees 3."""
    axes = angle_axes(3)
    assert axes["noise_angle"] == [15.0, 45.0, 75.0]
    assert angle_axes(1)["log_snr"] == pytest.approx([0.0], abs=1e-12)
    tangent = math.tan(math.radians(15))
    assert axes["log_snr"] == pytest.approx([-2 * math.log(tangent), 0.0, 2 * math.log(tangent)], abs=1e-12)
