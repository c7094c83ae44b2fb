"""The scale of the network's input. The process, the targets, the losses and the solvers keep x_t; only what the
network is shown is multiplied by a number that depends on t."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule


class Preconditioning(ABC):
    """A rule for the scale; stateless. It reads the schedule that is walked, so a respaced one has the scale of its
    own A, the same at the timesteps that it keeps."""

    @abstractmethod
    def input_scale(self, schedule: NoiseSchedule) -> Tensor | None:
        """(T,) float64, the factor on x_t at each timestep; None for x_t itself."""


class Plain(Preconditioning):
    """The network is shown x_t itself (Ho et al. 2020)."""

    def input_scale(self, schedule: NoiseSchedule) -> None:
        return None


class FDMScale(Preconditioning):
    """The network is shown (S_t/sqrt(A_t)) x_t = S_t (x_0 + s_t eps), with the mean of a critically damped oscillator

        S_t = A_t^m (1 - m ln A_t),     s_t = sqrt((1 - A_t)/A_t)

    (Fast Diffusion Model, Wu et al. 2023). This is our port to a discrete schedule: with B_t = -ln A_t, the schedule's
    integral of beta, S = exp(-m B)(1 + m B) is the paper's. The noise-to-signal ratio is the schedule's own. For
    pixels of variance 1 the input's standard deviation is S_t/sqrt(A_t): at most 1.21 for m = 1, where it falls to 0 at
    the end; for m = 0.5 it grows with the noise, to 12 at the end of the cosine schedule of 4000; for m = 2 it is 0
    over the last part, so that the network is shown nothing.

    Differs from the released code: its time is linear in s between the model's smallest and largest noise level, for
    every process; on a discrete cosine schedule, whose s ends at 8e4, that is S = 1 nearly everywhere. Its
    multiplier is 2 by default, in its README 1.

    Args:
        multiplier: m > 0.
    """

    def __init__(self, multiplier: float = 1.0) -> None:
        self.multiplier = check_number("multiplier", multiplier, "()", 0, math.inf, "use 1.0, which keeps the scale")

    def input_scale(self, schedule: NoiseSchedule) -> Tensor:
        a, m = schedule.alphas_cumprod, self.multiplier
        return torch.pow(a, m - 0.5) * (1 - m * a.log())
