"""The solver of a network that answers with the mean velocity of an interval."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.networks.second_time import takes_interval
from diffusion_lab.solvers.base import Bar, Noise, Spaced, describe_steps
from diffusion_lab.solvers.spacing import Spacing, Steps


class AverageVelocity(Spaced):
    """x_r = x_s - (s - r) u(x_s, r, s), from each timestep kept to the next, and from the last to r = 0, the data.

    s in [0, 1] is the position on the straight path, 0 at the data, and u = eps_hat - x0_hat of the network's answer
    for the interval s - r. With the exact u the result is exact for any number of steps. x starts as
    sqrt(alpha^2 + sigma^2) x_T at the noisiest timestep kept. The state is float64.

    Reference: Geng et al., "Mean flows for one-step generative modeling", 2025, equation 12 and algorithm 2, in whose
    time, too, 1 is noise.

    Use: for models of method=meanflow, in 1 to 4 steps.

    Args:
        steps: number of steps and of network calls; None for all T or, with spacing=listed, for the timesteps listed.
        spacing: which timesteps; None is `Trailing()`.

    Raises:
        ValueError: when a model is checked that has no second time.
    """

    def __init__(self, steps: Steps | None = 1, spacing: Spacing | None = None) -> None:
        super().__init__(steps, spacing)

    def describe(self) -> str:
        return f"meanflow-{describe_steps(self.steps)}-{self.spacing.describe()}"

    def check_model(self, denoiser: Denoiser) -> None:
        if not takes_interval(denoiser.network):
            raise ValueError(
                "_target_=AverageVelocity must have a model that was trained on intervals; train with method=meanflow, "
                "or use solver=euler"
            )

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        schedule, dtype, kept = denoiser.schedule, working_dtype(x_T), self.indices(denoiser.schedule)
        tables = torch.stack([schedule.position, schedule.signal_scale, schedule.noise_scale]).cpu()
        positions = [*tables[0, kept].tolist(), 0.0]
        x = x_T.double() * math.hypot(*tables[1:, kept[0]].tolist())
        for k, t in zip(bar(len(kept)), kept.tolist(), strict=True):
            length = positions[k] - positions[k + 1]
            interval = torch.full((len(x),), length, dtype=dtype, device=x.device)
            at = torch.full((len(x),), t, device=x.device)
            x0, eps = denoiser.estimate(x.to(dtype), at, interval=interval, **cond)
            x = x - length * (eps - x0).double()
        return x.to(x_T.dtype)
