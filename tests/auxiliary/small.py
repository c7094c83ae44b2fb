"""A module with a network of two layers, and auxiliary losses, without a trainer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser, Unit, Velocity, rectified_flow
from diffusion_lab.networks.kernels import run
from diffusion_lab.streams import Position, Streams
from diffusion_lab.training import DiffusionModule

T = 20


class Net(nn.Module):
    """Two convolutions; with `recompute` the first is computed again in the backward pass."""

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh())
        self.second = nn.Conv2d(4, 1, 3, padding=1)
        self.unused = nn.Identity()
        self.recompute = recompute

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.second(run(self.first, x, recompute=self.recompute))


def module(network: nn.Module | None = None, kind: type[DiffusionModule] = DiffusionModule, **more: Any) -> Any:
    """A module on rectified flow with T timesteps."""
    denoiser = Denoiser(network or Net(), rectified_flow(T), Velocity())
    weighting = more.pop("weighting", Unit())
    return kind(denoiser, weighting, partial(torch.optim.Adam, lr=1e-3), Streams(0), **more)


def images(rows: int = 6) -> Tensor:
    return torch.randn(rows, 1, 4, 4, generator=torch.Generator().manual_seed(5))


def stepped(of: Any, rows: int = 6) -> dict[str, Any]:
    """The result of the first training step."""
    return of.training_step({"image": images(rows)}, 0)


def at(of: Any, step: int) -> Any:
    """The same module before the update number `step` + 1."""
    of._position, of._tick = Position(step), lambda rows: None
    return of
