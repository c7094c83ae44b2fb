"""The variance V_t of the reverse step p(x_{t-1} | x_t) = N(mean, V_t). It lies between Vp_t and b_t.

The learned one needs a loss: the bound's term L_t (bits/dim) of the hybrid loss L_simple + w L_t, in which the mean
is held constant (Nichol & Dhariwal 2021, section 3.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule, extract, working_dtype


class Variance(ABC):
    """A rule for ln V_t; stateless. The network emits C*channels more channels when the variance is learned."""

    channels: int = 0

    @abstractmethod
    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        """ln V_t, ready to broadcast against (B,C,H,W).

        Args:
            out: (B,C*channels,H,W) the network's extra channels; (B,0,H,W) when there are none. float64 gives float64.
            t: (B,) indices into `schedule`.
            schedule: the schedule that is walked back, which may be a respaced one.
        """

    def loss_weight(self, schedule: NoiseSchedule) -> float:
        """Weight w of the bound's term in the training loss; 0 when nothing is learned."""
        return 0.0


class FixedSmall(Variance):
    """V_t = Vp_t, the posterior's variance, right for data that are one point; Vp_1 stands for Vp_0 = 0."""

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        return extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))


class FixedLarge(Variance):
    """V_t = b_t, right for data that are unit Gaussian; V_0 = Vp_1 (Ho et al. 2020, section 3.2).

    Differs from ddpm-torch: only its logarithm is replaced at t = 0, its variance keeps b_0, which no sampler reads.
    """

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        large = extract(schedule.log_betas, t, out.ndim, working_dtype(out))
        small = extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))
        return torch.where(t.reshape(large.shape) == 0, small, large)


class LearnedRange(Variance):
    """ln V_t = f ln b_t + (1-f) ln Vp_t, f = (out + 1)/2, one f per pixel and channel (Nichol & Dhariwal, eq. 15).

    f is not clipped: the network may leave the range.

    Two conventions for the weight w of L_t (bits/dim, one term) beside L_simple are in use:

        T/1000   improved-diffusion's default, 0.001 L_vlb of the paper with L_vlb = T E_t[L_t]
        1        guided-diffusion, DiT: the same only at T = 1000

    Args:
        vlb_weight: w >= 0, or None for T/1000.
    """

    channels = 1

    def __init__(self, vlb_weight: float | None = None) -> None:
        if vlb_weight is not None:
            check_number("vlb_weight", vlb_weight, "[)", 0, math.inf, "use null for T/1000 or 1.0 as ADM does")
        self.vlb_weight = vlb_weight

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        fraction = (out + 1) / 2
        large = extract(schedule.log_betas, t, out.ndim, working_dtype(out))
        small = extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))
        return fraction * large + (1 - fraction) * small

    def loss_weight(self, schedule: NoiseSchedule) -> float:
        return schedule.num_timesteps / 1000 if self.vlb_weight is None else self.vlb_weight
