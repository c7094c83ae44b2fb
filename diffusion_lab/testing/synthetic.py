"""Synthetic inputs of the contract tests, which need no network, and the state of modules, compared bit by bit."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

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


def state_of(module: nn.Module) -> dict:
    """A deep copy of everything that a checkpoint would have."""
    return copy.deepcopy(dict(module.state_dict()))


def same(a: object, b: object) -> bool:
    """Bitwise equality of dicts, lists and tensors."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
