"""EDM's deterministic second-order solver on a model with discrete timesteps (Karras et al. 2022, algorithm 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.solvers.base import Bar, Noise, Solver


class Heun(Solver):
    """Solves dx/dsigma = (x - D(x; sigma))/sigma from sigma_max to 0 in the coordinates x = x0 + sigma eps.

    A model of any schedule has the noise levels sigma_t = sqrt((1-A_t)/A_t), where

        D(x; sigma_t) = x0_hat(x / sqrt(1 + sigma_t^2), t),     (x - D)/sigma_t = eps_hat

    The levels are, for i = 0..N-1, followed by 0,

        (max^(1/rho) + i/(N-1) (min^(1/rho) - max^(1/rho)))^rho

    with min and max clamped to the model's range, and each level moved to the nearest one of the model. Each step is an
    Euler step with a correction by the slope at its end, except the last, which has no correction: 2N-1 network calls.
    The state is float64, and x starts as sigma_max x_T. A step between two equal levels changes nothing.

    Differs from Karras et al.: there is no churn (S_churn = 0), as for all their deterministic results.

    Args:
        steps: N >= 2.
        rho: >= 1, how much shorter the steps are at low noise.
        sigma_min: lowest noise level before 0, in units of the signal; > 0.
        sigma_max: highest noise level.
        clip: whether D is clipped to [-1, 1]; off in the paper.
    """

    def __init__(
        self, steps: int = 18, rho: float = 7.0, sigma_min: float = 0.002, sigma_max: float = 80.0, clip: bool = False
    ) -> None:
        self.steps = check_integer("steps", steps, 2, "18 is EDM's number for CIFAR-10")
        self.rho = check_number("rho", rho, "[)", 1, math.inf, "use 7.0 for the published setting")
        self.sigma_max = check_number("sigma_max", sigma_max, "()", 0, math.inf, "use 80.0 for the published setting")
        cure = "it must be below sigma_max, 0.002 in the paper"
        self.sigma_min = check_number("sigma_min", sigma_min, "()", 0, self.sigma_max, cure)
        self.clip = check_flag("clip", clip, "use false for the published setting")

    def check(self, schedule: NoiseSchedule) -> None:
        self.indices(schedule)

    def describe(self) -> str:
        word = f"heun-{self.steps}-rho{self.rho:g}-sigma{self.sigma_min:g}-{self.sigma_max:g}"
        return word + ("" if self.clip else "-unclipped")

    def indices(self, schedule: NoiseSchedule) -> Tensor:
        """Timesteps (N,) int64 on the CPU, noisiest first.

        Raises:
            ValueError: the range of noise levels does not meet the model's.
        """
        table = schedule.noise_level.cpu()
        low, high = max(self.sigma_min, table[0].item()), min(self.sigma_max, table[-1].item())
        if low >= high:
            raise ValueError(
                f"sigma_min={self.sigma_min:g} must leave a range up to sigma_max={self.sigma_max:g} inside the "
                f"model's noise levels {table[0]:.4g}..{table[-1]:.4g}; use 0.002 and 80.0"
            )
        ramp = torch.linspace(0, 1, self.steps, dtype=torch.float64)
        root = 1 / self.rho
        sigmas = (high**root + ramp * (low**root - high**root)) ** self.rho
        return (sigmas[:, None] - table).abs().argmin(1)

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        indices = self.indices(denoiser.schedule)
        schedule = denoiser.schedule
        sigmas = [*schedule.noise_level.cpu()[indices].tolist(), 0.0]
        norms = None if schedule.norm is None else schedule.norm.cpu()[indices].tolist()

        def slope(x: Tensor, k: int) -> Tensor:
            t = torch.full((len(x),), int(indices[k]), device=x.device)
            x_t = x / math.hypot(1, sigmas[k]) * (1 if norms is None else norms[k])
            estimate = denoiser.estimate(x_t.to(dtype), t, **cond)
            if self.clip:
                return (x - estimate.x0.clamp(-1, 1)) / sigmas[k]
            return estimate.eps.double()

        x, dtype = x_T.double() * sigmas[0], working_dtype(x_T)
        for k in bar(self.steps):
            width = sigmas[k + 1] - sigmas[k]
            first = slope(x, k)
            euler = x + width * first
            x = euler if k == self.steps - 1 else x + width * (first + slope(euler, k + 1)) / 2
        return x.to(x_T.dtype)
