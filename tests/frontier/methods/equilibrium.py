"""Equilibrium matching (Wang and Du 2025, arXiv 2510.02300): a gradient without time, and samples by descent."""

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser, Estimate, Prediction
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import Solver


class Blind(UNet):
    """A U-Net that is not told the time."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return super().forward(x, torch.zeros_like(t), label)


class Equilibrium(Prediction):
    """c(s) (eps - x0) on the straight path, c = gain min(1, s/(1 - start)), so that it vanishes at the data, s = 0."""

    def __init__(self, start: float = 0.8, gain: float = 4.0) -> None:
        super().__init__()
        self.start, self.gain = start, gain

    def factor(self, alpha: Tensor, sigma: Tensor) -> Tensor:
        return self.gain * (sigma / (alpha + sigma) / (1 - self.start)).clamp(max=1)

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return self.factor(alpha, sigma) * (eps - x0)

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        u, d = out / self.factor(alpha, sigma), alpha + sigma
        return Estimate((x_t - sigma * u) / d, (x_t + alpha * u) / d)

    def native_scale(self, snr: Tensor) -> Tensor:
        root = snr.sqrt()
        return (self.factor(root, torch.ones_like(root)) * (1 + root)).square()


class Descent(Solver):
    """x <- x - size f(x), with momentum."""

    def __init__(self, steps: int = 50, size: float = 0.01, momentum: float = 0.35) -> None:
        self.steps, self.size, self.momentum = steps, size, momentum

    def describe(self) -> str:
        return f"descent-{self.steps}-{self.size:g}-{self.momentum:g}"

    def check(self, schedule) -> None:
        pass

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise, bar, cond: dict[str, Tensor]) -> Tensor:
        x, t, slope = x_T, torch.zeros(len(x_T), dtype=torch.int64, device=x_T.device), torch.zeros_like(x_T)
        for _ in bar(self.steps):
            slope = denoiser.network(x - self.size * self.momentum * slope, t, **cond)
            x = x - self.size * slope
        return x
