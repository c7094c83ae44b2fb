"""How often a solver calls the network for one sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers.base import Solver


def network_calls(solver: Solver, denoiser: Denoiser) -> int:
    """Network calls of one row each for one sample: the solver runs once on one pixel, with a network of zeros.

    Args:
        solver: how to sample.
        denoiser: gives schedule, prediction and variance; its network is not called.
    """
    counter, device = _Counter(denoiser.prediction.heads + denoiser.variance.channels), denoiser.timesteps.device
    counted = Denoiser(counter, denoiser.schedule, denoiser.prediction, denoiser.variance, null_label=1).to(device)
    start, label = torch.zeros(1, 1, 1, 1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    solver(counted, start, noise=lambda k, like: torch.zeros_like(like), label=label)
    return counter.calls


class _Counter(nn.Module):
    """A replacement for the network that counts the rows of its calls."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.calls = channels, 0

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        self.calls += len(x)
        return x.new_zeros(len(x), self.channels, *x.shape[2:])
