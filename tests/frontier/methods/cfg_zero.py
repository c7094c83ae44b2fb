"""CFG-Zero* (Fan et al. 2025, arXiv 2503.18886): guidance with a fitted scale, and nothing in the first steps."""

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers import Around, Solver


class Fitted(nn.Module):
    """b free + scale (out - b free) with b = <out, free>/|free|^2 of each row; 0 at the times after `start`."""

    def __init__(self, network: nn.Module, null_label: int, scale: float, start: float) -> None:
        super().__init__()
        self.network, self.null_label, self.scale, self.start = network, null_label, scale, start

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        out, free = (self.network(x, t, label=which) for which in (label, torch.full_like(label, self.null_label)))
        sums = [(a * free).flatten(1).sum(1).view(-1, 1, 1, 1) for a in (out, free)]
        free = sums[0] / (sums[1] + 1e-8) * free
        return torch.where((t > self.start).view(-1, 1, 1, 1), 0.0, free + self.scale * (out - free))


class GuidedZero(Around):
    """The solver `base` so guided, for models of the velocity."""

    needs_null_label = True

    def __init__(self, base: Solver, scale: float = 2.0, zero: float = 0.04) -> None:
        super().__init__(base)
        self.scale, self.zero = scale, zero

    def describe(self) -> str:
        return f"{self.base.describe()}-cfgzero{self.scale:g}-{self.zero:g}"

    def model(self, denoiser: Denoiser) -> Denoiser:
        times = denoiser.time.values(denoiser.schedule)
        last = float((denoiser.timesteps if times is None else times)[-1])
        assert denoiser.null_label is not None  # since needs_null_label
        return denoiser.with_network(Fitted(denoiser.network, denoiser.null_label, self.scale, (1 - self.zero) * last))
