"""Sampling of models that generate an image in one call."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.solvers.base import Bar, Noise, Solver


class OneCall(Solver):
    """images = generator(z), with z standard normal: for the generator of a GAN."""

    steps: Any = None

    def start_shape(self, model: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (model.latent_dim,)

    def solve(self, denoiser: nn.Module, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        return denoiser(x_T, **cond)

    def describe(self) -> str:
        return "one-call"

    def check(self, schedule: NoiseSchedule) -> None:
        """Raise ValueError: a diffusion model cannot be sampled in one call."""
        raise ValueError("_target_=OneCall must be a solver of timesteps for a diffusion model; use solver=ddim")
