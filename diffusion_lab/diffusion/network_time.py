"""The time that the network is given. t remains the index of a timestep everywhere else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule


class NetworkTime(ABC):
    """A rule for the number; stateless. It reads the schedule that is walked, whose tables keep those of the timesteps
    that a respaced one visits."""

    @abstractmethod
    def values(self, schedule: NoiseSchedule) -> Tensor | None:
        """(T,) float64, the network's time at each timestep; None for the index among the original timesteps."""


class TimestepIndex(NetworkTime):
    """t itself, 0 .. T-1, int64 (Ho et al. 2020; DiT)."""

    def values(self, schedule: NoiseSchedule) -> None:
        return None


class PathPosition(NetworkTime):
    """scale s, with s in [0, 1] the parameter of the path, 0 at the data (`NoiseSchedule.position`).

    A network with sinusoidal features made for indices needs the scale 1000 (SD3, and diffusers' flow matching): over
    [0, 1] itself most of its features hardly change. SiT's network is given 1 - s as it is.

    Args:
        scale: > 0.
    """

    def __init__(self, scale: float = 1000.0) -> None:
        self.scale = check_number("scale", scale, "()", 0, math.inf, "use 1000.0 as SD3 does")

    def values(self, schedule: NoiseSchedule) -> Tensor:
        return self.scale * schedule.position


class LogNoise(NetworkTime):
    """scale ln(s)/4 with the noise level s = sigma/alpha (Karras et al. 2022, EDM, table 1: c_noise with scale 1).

    EDM's range, 0.002 to 80, is -1.6 to 1.1. Sinusoidal features made for indices hardly change there: EDM's own
    networks have others. A scale of 250 spreads it over some 660 numbers.

    Args:
        scale: > 0.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = check_number("scale", scale, "()", 0, math.inf, "use 1.0 for the published setting")

    def values(self, schedule: NoiseSchedule) -> Tensor:
        return -self.scale * schedule.log_snr / 8
