"""Timestep samplers whose law is fixed before training."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.timesteps.base import FixedSampler, TimestepSampler


class Uniform(TimestepSampler):
    """p_t = 1/T, the law of DDPM (Ho et al. 2020, Algorithm 1).

    Args:
        num_timesteps: T.
    """

    _p: Tensor

    def __init__(self, num_timesteps: int) -> None:
        super().__init__(num_timesteps)
        self.register_buffer(
            "_p", torch.full((num_timesteps,), 1.0 / num_timesteps, dtype=torch.float64), persistent=False
        )

    def probabilities(self, step: int) -> Tensor:
        return self._p

    def quantile(self, u: Tensor, step: int) -> Tensor:
        # floor(u T) needs no table, so its cost does not depend on T.
        return (u * self.num_timesteps).long()


class LogitNormal(FixedSampler):
    """t = round((T-1) sigmoid(z)),  z ~ N(mean, std^2): the sampler that Kim et al. (2025) call log-normal.

    Bin masses, with Phi the normal distribution function and edges e_j = logit((j - 1/2)/(T - 1)):

        p_t = Phi((e_{t+1} - mean)/std) - Phi((e_t - mean)/std),   e_0 = -inf, e_T = +inf.

    Symmetric about T/2 for mean 0; the first and the last timesteps are almost never drawn.

    Differs from Kim et al. section 4.1: the rounding is not stated there; here it is to the nearest integer, because
    then both ends are treated alike. It is not the log-normal law in sigma of Karras et al. (2022).

    Args:
        num_timesteps: T >= 2.
        mean: mean of z; positive draws noisier timesteps.
        std: standard deviation of z, > 0.
        reweight: whether the loss carries 1/(T p_t). The weights at both ends are then very large.

    Raises:
        ValueError: T < 2, std <= 0, or `reweight` with a law so narrow that a probability underflows to zero.
    """

    def __init__(self, num_timesteps: int, mean: float = 0.0, std: float = 1.0, reweight: bool = False) -> None:
        if num_timesteps < 2:
            raise ValueError(f"num_timesteps={num_timesteps} must be at least 2; use 1000 as most papers do")
        if not std > 0:
            raise ValueError(f"std={std} must be > 0; use 1.0 for the published setting")
        inner = (torch.arange(1, num_timesteps, dtype=torch.float64) - 0.5) / (num_timesteps - 1)
        z = (torch.logit(inner) - mean) / std
        # Upper tails as 1 - Phi lose all digits; Phi(-z) keeps them, so each bin uses the smaller tail.
        lower = torch.cat([torch.zeros(1), torch.special.ndtr(z), torch.ones(1)]).double()
        upper = torch.cat([torch.ones(1), torch.special.ndtr(-z), torch.zeros(1)]).double()
        masses = torch.where(lower[1:] < 0.5, lower.diff(), -upper.diff())
        super().__init__(masses, reweight)
        self.mean, self.std = mean, std
