"""A timestep sampler whose distribution is given on the axis of ln SNR, and distributions for it.

Everything that depends on the ratio of signal and noise alone is a function of ln SNR, so that a distribution on this
axis means the same on every path and every grid. With the noise level sigma = SNR^-1/2, ln SNR = -2 ln sigma:

    ln sigma ~ N(m, d^2)                  is  Normal(location=-2 m, scale=2 d);  EDM's is 2.4, 2.4
    logit s ~ N(m, d^2), rectified flow   is  Normal(location=-2 m, scale=2 d);  SD3's is 0, 2
    the shift S of SD3                    is  -2 ln S added to the location

A distribution of one's own is a subclass of `Distribution` with `cdf`, and needs no edit here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice, check_number
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.timesteps.base import FixedSampler
from diffusion_lab.timesteps.masses import halfway, masses, open_masses

OUTSIDE = ("renormalize", "clamp")


class Distribution(ABC):
    """A distribution of a real number x."""

    @abstractmethod
    def cdf(self, x: Tensor) -> Tensor:
        """P(X <= x): (n,) float64 -> (n,) float64."""

    def survival(self, x: Tensor) -> Tensor:
        """P(X > x): (n,) -> (n,). Override it if 1 - cdf loses the upper tail to rounding."""
        return 1 - self.cdf(x)


class Symmetric(Distribution):
    """x = location + scale z with z symmetric about 0; a subclass gives `standard_cdf`.

    Args:
        location: the median, in nats of ln SNR.
        scale: > 0, in nats.

    Raises:
        ValueError: location is not finite, or scale <= 0.
    """

    def __init__(self, location: float = 0.0, scale: float = 1.0) -> None:
        check_number("location", location, "()", -math.inf, math.inf, "use 0.0, where signal and noise are equal")
        check_number("scale", scale, "()", 0, math.inf, "use 1.0")
        self.location, self.scale = location, scale

    @abstractmethod
    def standard_cdf(self, z: Tensor) -> Tensor:
        """P(Z <= z), with all digits for z < 0: (n,) -> (n,)."""

    def cdf(self, x: Tensor) -> Tensor:
        return self.standard_cdf((x - self.location) / self.scale)

    def survival(self, x: Tensor) -> Tensor:
        return self.standard_cdf((self.location - x) / self.scale)


class Normal(Symmetric):
    """N(location, scale^2): EDM's distribution (Karras et al. 2022) at 2.4, 2.4; SD3's logit-normal at 0, 2."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-z / math.sqrt(2))


class Laplace(Symmetric):
    """Density exp(-|z|)/(2 scale), z = (x - location)/scale (Hang et al. 2024, who use 0 and 0.5)."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        half = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, half, 1 - half)


class Cauchy(Symmetric):
    """Density 1/(pi scale (1 + z^2)), z = (x - location)/scale: heavy tails (Hang et al. 2024)."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        return torch.atan2(torch.ones_like(z), -z) / math.pi


class LogSNR(FixedSampler):
    """ln SNR has a given distribution F; t is the timestep whose ln SNR, L_t, is nearest.

        p_t = F(e_t) - F(e_{t+1}),   e_t = (L_{t-1} + L_t)/2,   L falls with t

    What F has outside the schedule's range is either left out, with e_0 = L_0 + (L_0 - L_1)/2 and e_T likewise, and the
    rest divided by its sum; or it belongs to the outermost timesteps, e_0 = inf, e_T = -inf.

    Use: to train on the same noise on every schedule, so that a comparison of schedules is not one of samplers.

    Args:
        schedule: noise schedule with T timesteps.
        distribution: F.
        outside: renormalize | clamp.
        reweight: whether the loss carries 1/(T p_t).

    Raises:
        ValueError: another word, no mass inside the schedule's range, or `reweight` with a timestep without any.
    """

    def __init__(
        self,
        schedule: NoiseSchedule,
        distribution: Distribution,
        outside: str = "renormalize",
        reweight: bool = False,
    ) -> None:
        check_choice("outside", outside, OUTSIDE, "use renormalize, or clamp as EDM's wrapper of discrete models")
        grid = schedule.log_snr
        inner = halfway(grid)
        # Timesteps below t have a larger ln SNR.
        if outside == "clamp" or len(grid) == 1:
            p = open_masses(distribution.survival(inner), distribution.cdf(inner))
        else:
            edges = torch.cat([2 * grid[:1] - inner[:1], inner, 2 * grid[-1:] - inner[-1:]])
            p = masses(distribution.survival(edges), distribution.cdf(edges))
        if bool((p == 0).all()):
            raise ValueError(
                f"distribution={type(distribution).__name__} must have mass between the schedule's ln SNR of "
                f"{grid[-1]:.1f} and {grid[0]:.1f}; use a location between them, a larger scale, or outside=clamp"
            )
        super().__init__(p, reweight)
        self.distribution = distribution
