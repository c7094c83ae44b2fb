"""EDM's second-order solver on a model with discrete timesteps (Karras et al. 2022, algorithms 1 and 2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.solvers.base import Bar, Noise, Solver
from diffusion_lab.solvers.spacing import nearest
from diffusion_lab.solvers.spacings import Karras


class Heun(Solver):
    """Solves dx/dsigma = (x - D(x; sigma))/sigma from sigma_max to 0 in the coordinates x = x0 + sigma eps.

    A model of any schedule has the noise levels sigma_t = sqrt((1-A_t)/A_t), where

        D(x; sigma_t) = x0_hat(x / sqrt(1 + sigma_t^2), t),     (x - D)/sigma_t = eps_hat

    The levels are, for i = 0..N-1, followed by 0,

        (max^(1/rho) + i/(N-1) (min^(1/rho) - max^(1/rho)))^rho

    with min and max clamped to the model's range, and each level moved to the nearest one of the model. Each step is an
    Euler step with a correction by the slope at its end, except the last, which has no correction: 2N-1 network calls.
    The state is float64, and x starts as sigma_max x_T. A step between two equal levels changes nothing.

    With s_churn > 0 and s_min <= s <= s_max for the level s, noise is added before the step (algorithm 2),

        x <- x + sqrt(s_hat^2 - s^2) s_noise z,   s_hat = (1 + min(s_churn/N, sqrt(2) - 1)) s

    and the step starts at s_hat, moved to the nearest level of the model.

    Differs from Karras et al.: s_hat is a level of the model, because the network is defined at these only, so where
    levels are sparse or s is the highest one less noise is added, or none.

    Use: EDM's path with 18 to 40 steps, and where an exact solution is wanted for a comparison.

    Args:
        steps: N >= 1.
        rho: >= 1, how much shorter the steps are at low noise.
        sigma_min: lowest noise level before 0, in units of the signal; > 0.
        sigma_max: highest noise level.
        clip: whether D is clipped to [-1, 1]; off in the paper.
        s_churn: noise that is added anew over all steps, >= 0; 0 is deterministic.
        s_min: lowest noise level at which it is added.
        s_max: highest one; None for no limit.
        s_noise: standard deviation of the noise added; a little above 1 makes up for denoising that removes too much.
    """

    def __init__(
        self,
        steps: int = 18,
        rho: float = 7.0,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        clip: bool = False,
        s_churn: float = 0.0,
        s_min: float = 0.0,
        s_max: float | None = None,
        s_noise: float = 1.0,
    ) -> None:
        self.steps = check_integer("steps", steps, 1, "18 is EDM's number for CIFAR-10")
        self.rho = check_number("rho", rho, "[)", 1, math.inf, "use 7.0 for the published setting")
        self.sigma_max = check_number("sigma_max", sigma_max, "()", 0, math.inf, "use 80.0 for the published setting")
        cure = "it must be below sigma_max, 0.002 in the paper"
        self.sigma_min = check_number("sigma_min", sigma_min, "()", 0, self.sigma_max, cure)
        self.clip = check_flag("clip", clip, "use false for the published setting")
        self.s_churn = check_number("s_churn", s_churn, "[)", 0, math.inf, "use 0.0 for the deterministic solver")
        self.s_min = check_number("s_min", s_min, "[)", 0, math.inf, "use 0.0 for no lower limit")
        highest = math.inf if s_max is None else s_max
        self.s_max = check_number("s_max", highest, "[]", self.s_min, math.inf, "use null for no upper limit")
        self.s_noise = check_number("s_noise", s_noise, "()", 0, math.inf, "use 1.0, or 1.003 as in the paper")

    def check(self, schedule: NoiseSchedule) -> None:
        self.indices(schedule)

    def describe(self) -> str:
        word = f"heun-{self.steps}-rho{self.rho:g}-sigma{self.sigma_min:g}-{self.sigma_max:g}"
        if self.s_churn > 0:
            word += f"-churn{self.s_churn:g}-{self.s_min:g}-{self.s_max:g}-noise{self.s_noise:g}"
        return word + ("" if self.clip else "-unclipped")

    def indices(self, schedule: NoiseSchedule) -> Tensor:
        """Timesteps (N,) int64 on the CPU, noisiest first.

        Raises:
            ValueError: the range of noise levels does not meet the model's.
        """
        return Karras(self.rho, self.sigma_min, self.sigma_max).with_repeats(schedule, self.steps)

    def churned(self, table: Tensor, indices: Tensor) -> Tensor:
        """The timestep (N,) int64 at which each step starts, `indices` itself without churn.

        Args:
            table: (T,) noise levels of the model.
            indices: (N,) int64 timesteps before the noise is added.
        """
        if self.s_churn == 0:
            return indices
        levels = table[indices]
        factor = 1 + min(self.s_churn / self.steps, math.sqrt(2) - 1)
        inside = (levels >= self.s_min) & (levels <= self.s_max)
        return torch.where(inside, nearest(factor * levels, table), indices)

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        indices = self.indices(denoiser.schedule)
        schedule, dtype = denoiser.schedule, working_dtype(x_T)
        table, norm = schedule.noise_level.cpu(), None if schedule.norm is None else schedule.norm.cpu()
        starts = self.churned(table, indices)
        sigmas, hats = [*table[indices].tolist(), 0.0], table[starts].tolist()

        def slope(x: Tensor, index: Tensor, sigma: float) -> Tensor:
            t = torch.full((len(x),), int(index), device=x.device)
            x_t = x / math.hypot(1, sigma) * (1 if norm is None else norm[index].item())
            estimate = denoiser.estimate(x_t.to(dtype), t, **cond)
            if self.clip:
                return (x - estimate.x0.clamp(-1, 1)) / sigma
            return estimate.eps.double()

        x = x_T.double() * sigmas[0]
        for k in bar(self.steps):
            if hats[k] > sigmas[k]:
                x = x + math.sqrt(hats[k] ** 2 - sigmas[k] ** 2) * self.s_noise * noise(k, x)
            width = sigmas[k + 1] - hats[k]
            first = slope(x, starts[k], hats[k])
            euler = x + width * first
            if k == self.steps - 1:
                x = euler
            else:
                x = x + width * (first + slope(euler, indices[k + 1], sigmas[k + 1])) / 2
        return x.to(x_T.dtype)
