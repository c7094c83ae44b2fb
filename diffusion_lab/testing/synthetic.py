"""Inputs of the contract tests: images, and a probe whose losses need no network."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.streams import Streams


class SyntheticProbe:
    """Losses that fall with the timestep, differ between images, and shrink as `updates` grows; a toy network."""

    def __init__(self, num_timesteps: int) -> None:
        self.num_timesteps, self.updates = num_timesteps, 0

    def loss(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        noise = Streams(seed).normal((len(x0), len(t)), "testing", seed).abs()
        image = 1.0 + x0.flatten(1).abs().mean(1)
        decay = torch.exp(-4.0 * t / self.num_timesteps)
        return (image[:, None] * decay + 0.01 * noise) / (1.0 + self.updates)

    def pairs(
        self, x0: Tensor, t: Tensor, index: Tensor, total: int, seed: int, keep_mode: bool = False, **cond: Tensor
    ) -> Tensor:
        noise = Streams(seed).normal((total,), "testing", seed).abs()[index]
        image = 1.0 + x0.flatten(1).abs().mean(1)
        return (image * torch.exp(-4.0 * t / self.num_timesteps) + 0.01 * noise) / (1.0 + self.updates)

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        image = 1.0 + x0.flatten(1).abs().mean(1)
        return (image * torch.exp(-4.0 * t / self.num_timesteps)).double()

    def grad_moments(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> tuple[Tensor, Tensor]:
        norms = torch.stack([self.grad_sq_norm(x0, at.expand(len(x0)), seed) for at in t])
        return norms.var(1) + 0.1 * norms.mean(1), norms.mean(1)


def images(rows: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """(rows, *shape) images in [-1, 1], a function of the seed."""
    return Streams(seed).normal((rows, *shape), "testing").clamp(-1, 1)
