"""Classifier-free guidance at middle noise levels alone (Kynkäänniemi et al. 2024)."""

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers import Around, Solver


class Within(nn.Module):
    """The guided network at the times low < t <= high, elsewhere the network itself."""

    def __init__(self, network: nn.Module, null_label: int, scale: float, low: float, high: float) -> None:
        super().__init__()
        self.network, self.null_label, self.scale, self.low, self.high = network, null_label, scale, low, high

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        out = self.network(x, t, label=label)
        free = self.network(x, t, label=torch.full_like(label, self.null_label))
        scale = torch.where((t > self.low) & (t <= self.high), self.scale, 1.0)
        return free + scale.view(-1, 1, 1, 1) * (out - free)


class GuidedWithin(Around):
    """The solver `base` with guidance at timesteps between `low` T and `high` T."""

    needs_null_label = True

    def __init__(self, base: Solver, scale: float = 2.0, low: float = 0.2, high: float = 0.7) -> None:
        super().__init__(base)
        self.scale, self.low, self.high = scale, low, high

    def describe(self) -> str:
        return f"{self.base.describe()}-within{self.low:g}-{self.high:g}x{self.scale:g}"

    def model(self, denoiser: Denoiser) -> Denoiser:
        ends = (share * int(denoiser.timesteps[-1]) for share in (self.low, self.high))
        assert denoiser.null_label is not None  # since needs_null_label
        return denoiser.with_network(Within(denoiser.network, denoiser.null_label, self.scale, *ends))
