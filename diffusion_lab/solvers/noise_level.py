"""Solvers with one network call per step, in the coordinates in which every Gaussian path is the same.

    z = x_t / alpha_t = x0 + s eps,     s = sigma_t / alpha_t     (Karras et al. 2022)

A step leads from the noise level s of one kept timestep to s' < s of the next, and from the last one to s' = 0. With
lambda = -ln s, h = ln(s/s') and r = s'/s = e^-h, the two equations to solve are, D(z, s) being the estimate of x0,

    dz/dlambda = D - z                                             probability flow
    dz         = 2 (D - z) dlambda + sqrt(2) s dw,   w a Wiener process in lambda        the reverse process

alpha and sigma of the path enter only where the network is called, with x_t = alpha_t z. Coefficients are Python
floats, computed in float64 once per batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.solvers.base import Bar, Noise, Solver, check_steps, describe_steps
from diffusion_lab.solvers.respacing import Steps
from diffusion_lab.solvers.spacing import Spacing, check_falling
from diffusion_lab.solvers.spacings import Trailing

Step = Callable[[int, Tensor, Tensor], Tensor]  # step(k, z, x0) -> z at level k+1


class NoiseLevelSolver(Solver):
    """A subclass gives its name and its step; the steps are N network calls.

    The state is float64, and z starts as sqrt(1 + s^2) x_T at the noisiest timestep kept, which is
    x_t = sqrt(alpha_t^2 + sigma_t^2) x_T. Between grid points the network is not defined, so the result is as exact as
    the spacing allows: the order of a solver shows as long as T is well above the number of steps.

    Attributes:
        name: the solver's own settings in one word, for `describe`.

    Args:
        steps: number of steps N, or a form of `space_timesteps`; None for all T, or for those that the spacing lists.
        spacing: which timesteps; None is `Trailing()`.
        clip: whether the estimate of x0 is clipped to [-1, 1].
    """

    name: str

    def __init__(self, steps: Steps | None = 50, spacing: Spacing | None = None, clip: bool = True) -> None:
        self.steps = check_steps(steps)
        self.spacing = Trailing() if spacing is None else spacing
        self.clip = check_flag("clip", clip, "use true for images in [-1, 1], false for latents")

    @abstractmethod
    def stepper(self, levels: list[float], noise: Noise) -> Step:
        """The step of one batch; it may keep earlier estimates.

        Args:
            levels: s_0 > .. > s_{N-1} > 0, and a last 0.
            noise: standard normal noise(k, like) of step k.
        """

    def check(self, schedule: NoiseSchedule) -> None:
        self.indices(schedule)

    def describe(self) -> str:
        words = [self.name, self.spacing.describe(), *([] if self.clip else ["unclipped"])]
        return "-".join([words[0], *([] if self.steps is None else [describe_steps(self.steps)]), *words[1:]])

    def indices(self, schedule: NoiseSchedule) -> Tensor:
        """Timesteps (N,) int64 on the CPU, falling.

        Raises:
            ValueError: the steps do not fit the schedule.
        """
        return check_falling(self.spacing.indices(schedule, self.steps), schedule.num_timesteps, "spacing")

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        kept, schedule, dtype = self.indices(denoiser.schedule), denoiser.schedule, working_dtype(x_T)
        timesteps, alphas = kept.tolist(), schedule.signal_scale.cpu()[kept].tolist()
        levels = [*schedule.noise_level.cpu()[kept].tolist(), 0.0]
        step = self.stepper(levels, noise)
        z = x_T.double() * math.hypot(1, levels[0])
        for k in bar(len(timesteps)):
            t = torch.full((len(z),), timesteps[k], device=z.device)
            x0 = denoiser.estimate((alphas[k] * z).to(dtype), t, **cond).x0.double()
            z = step(k, z, x0.clamp(-1, 1) if self.clip else x0)
        return z.to(x_T.dtype)


def toward(z: Tensor, x0: Tensor, ratio: float) -> Tensor:
    """ratio z + (1 - ratio) x0, the exact solution where x0 does not depend on the noise level."""
    return ratio * z + (1 - ratio) * x0
