"""Ancestral sampling (Ho et al. 2020, algorithm 2; respaced: Nichol & Dhariwal 2021, section 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.solvers.base import Bar, Noise, Solver, check_steps, describe_steps, visited
from diffusion_lab.solvers.respacing import Steps


class DDPM(Solver):
    """x_{t-1} = C1 x0_hat + C2 x_t + [t > 0] sqrt(V_t) z,   z ~ N(0, I).

    With fewer steps than T the schedule is respaced: same A at the timesteps kept, new betas between them, and the
    variance, fixed or learned, from those betas. The network still receives the original timesteps. On any path it
    starts from sqrt(alpha_{T-1}^2 + sigma_{T-1}^2) x_T.

    Use: all timesteps, as the papers do, and whenever a learned variance counts.

    Args:
        steps: number of steps, or a form of `space_timesteps`; None for all T.
        clip: whether x0_hat is clipped to [-1, 1] before the mean is computed from it.
    """

    def __init__(self, steps: Steps | None = None, clip: bool = True) -> None:
        self.steps = check_steps(steps)
        self.clip = check_flag("clip", clip, "use true for images in [-1, 1], false for latents")

    def check(self, schedule: NoiseSchedule) -> None:
        visited(schedule.num_timesteps, self.steps)

    def describe(self) -> str:
        return f"ddpm-{describe_steps(self.steps)}" + ("" if self.clip else "-unclipped")

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        if self.steps is not None:
            denoiser = denoiser.respace(visited(denoiser.num_timesteps, self.steps))
        total, norm = denoiser.num_timesteps, denoiser.schedule.norm
        x = x_T if norm is None else norm[-1].to(x_T) * x_T
        for k in bar(total):
            t = torch.full((len(x),), total - 1 - k, device=x.device)
            mean, log_variance, _ = denoiser.reverse(x, t, self.clip, **cond)
            x = mean if k == total - 1 else mean + torch.exp(0.5 * log_variance) * noise(k, x)
        return x
