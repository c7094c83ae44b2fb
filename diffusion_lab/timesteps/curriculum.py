"""Curriculum learning based timestep schedule (CLTS): from a uniform to a Gaussian distribution over training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice, check_integer, check_number
from diffusion_lab.timesteps.base import TimestepSampler, invert

OUTSIDE = ("renormalize", "renormalize_after", "clamp")


class CLTS(TimestepSampler):
    """p_t = (1 - g)/T + g N_t,  g = min(1, step/target_steps)  ("Why diffusion models are stable", eq. 7 and 8).

    N is a Gaussian on the timesteps 0..T-1 with mean mu = round(mean T), at most T - 1, and standard deviation
    s = std T. For std = 1 only about 38 % of a Gaussian's mass is in this range; `outside` says what is done with the
    rest. With the density phi_t = exp(-(t - mu)^2/(2 s^2))/(s sqrt(2 pi)) and its sum m over the timesteps,

        renormalize         N_t = phi_t/m
        renormalize_after   p_t ~ (1 - g)/T + g phi_t, divided by its sum: N_t = phi_t/m with g replaced by
                            m g/(1 - (1 - m) g), a slower ramp
        clamp               N_t = Phi((t + 1/2 - mu)/s) - Phi((t - 1/2 - mu)/s), with Phi the normal distribution
                            function, 0 in place of the second term at t = 0 and 1 in place of the first at t = T - 1:
                            a draw beyond an end counts as that end

    With `mean_end`, mu = round((mean + g (mean_end - mean)) T).

    Each draw uses one uniform random number u: if u < g, it is mapped to a timestep of N, else to a uniform one, so no
    table is computed again as training goes on. With the defaults, std = 1 and mean = 0.3, N is nearly uniform: even
    g = 1 changes p_t only by -17 % to +6 %.

    Differs from the paper: its section 4.2 says "variance sigma = T", which is read here as the standard deviation,
    because with a variance of T (std = 1/sqrt(T) here) almost all timesteps would never be drawn.

    Use: to repeat the paper. By default the length of the curriculum is a share of max_steps, so a run must not be
    extended later. In `experiment=schedule_by_sampler` it changed little.

    Args:
        num_timesteps: T, the number of timesteps.
        target_steps: optimizer steps until g = 1, >= 1; for CIFAR-10 the paper has 50000 of 500000 in appendix B and
            100000 in section 5.1.
        mean: mean of the Gaussian as a fraction of T, in [0, 1]: mu = round(mean T).
        std: standard deviation of the Gaussian as a fraction of T, > 0: s = std T.
        outside: renormalize, renormalize_after or clamp, see above.
        mean_end: mean at the end of the curriculum as a fraction of T, to which it moves linearly from `mean`; null
            keeps `mean`. The paper's abandoned idea moves it from 1 to 0. The table of N is then computed at each draw.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: an argument outside its range; mu outside {0..T-1}.
    """

    _normal: Tensor
    _cdf: Tensor

    def __init__(
        self,
        num_timesteps: int,
        target_steps: int,
        mean: float = 0.3,
        std: float = 1.0,
        outside: str = "renormalize",
        mean_end: float | None = None,
        reweight: bool = False,
    ) -> None:
        super().__init__(num_timesteps, reweight)
        self.target_steps = check_integer("target_steps", target_steps, 1, "use 50000 optimizer steps for CIFAR-10")
        self.mean = check_number("mean", mean, "[]", 0, 1, "use a fraction of T, 0.3 as published")
        if mean_end is not None:
            check_number("mean_end", mean_end, "[]", 0, 1, "use a fraction of T, or null to keep the mean")
        self.std = check_number("std", std, "()", 0, math.inf, "use a fraction of T, 1.0 as published")
        self.outside = check_choice("outside", outside, OUTSIDE, "use renormalize")
        self.mean_end = mean_end
        self.register_buffer("_normal", self._gaussian(self.mean), persistent=False)
        self._mass = float(self._normal.sum())
        self.register_buffer("_cdf", (self._normal / self._normal.sum()).cumsum(0), persistent=False)

    def probabilities(self, step: int) -> Tensor:
        share, normal = self._parts(step)
        uniform = torch.full_like(normal, 1.0 / self.num_timesteps)
        return (1 - share) * uniform + share * normal / normal.sum()

    def quantile(self, u: Tensor, step: int) -> Tensor:
        share, normal = self._parts(step)
        cdf = self._cdf if self.mean_end is None else normal.cumsum(0)
        gaussian = invert(cdf, (u / max(share, 1e-300)).clamp(max=1 - 1e-16))
        rest = (u - share) / max(1 - share, 1e-300)
        uniform = (rest.clamp(0, 1 - 1e-16) * self.num_timesteps).long()
        return torch.where(u < share, gaussian, uniform)

    def _parts(self, step: int) -> tuple[float, Tensor]:
        """Share of the Gaussian among the draws at this step, and its table."""
        g = min(1.0, step / self.target_steps)
        normal = self._normal
        if self.mean_end is not None:
            normal = self._gaussian(self.mean + g * (self.mean_end - self.mean)).to(normal.device)
        if self.outside == "renormalize_after":
            mass = self._mass if self.mean_end is None else float(normal.sum())
            g = mass * g / (1 - (1 - mass) * g)
        return g, normal

    def _gaussian(self, mean: float) -> Tensor:
        """(T,) float64 table of N; its sum is 1 only for `clamp`."""
        steps = self.num_timesteps
        mu, sigma = min(round(mean * steps), steps - 1), self.std * steps
        t = torch.arange(steps, dtype=torch.float64)
        if self.outside == "clamp":
            cdf = torch.special.ndtr((t[:-1] + 0.5 - mu) / sigma)
            return torch.cat([cdf, cdf.new_ones(1)]).diff(prepend=cdf.new_zeros(1))
        # With a very narrow Gaussian the exponent underflows away from mu; at mu it is 1.
        return torch.exp(-0.5 * ((t - mu) / sigma) ** 2) / (sigma * (2 * torch.pi) ** 0.5)
