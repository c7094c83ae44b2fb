"""Autoguidance (Karras et al. 2024): away from what a weaker run of the same kind answers."""

from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.solvers import Around, Solver


class Away(nn.Module):
    """weak + scale (network - weak)."""

    def __init__(self, network: nn.Module, weak: nn.Module, scale: float) -> None:
        super().__init__()
        self.network, self.weak, self.scale = network, weak, scale

    def forward(self, x: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        weak = self.weak(x, t, **cond)
        return weak + self.scale * (self.network(x, t, **cond) - weak)


class WeakGuidance(Around):
    """The solver `base` on the guided model."""

    def __init__(self, base: Solver, weak: TrainedRun, scale: float = 2.0) -> None:
        super().__init__(base)
        self.weak, self.scale = weak, scale

    def describe(self) -> str:
        return f"{self.base.describe()}-weak{self.scale:g}-{self.weak.checksum}"

    def model(self, denoiser: Denoiser) -> Denoiser:
        weak = self.weak.opened().denoiser.to(denoiser.timesteps.device)
        return denoiser.with_network(Away(denoiser.network, weak.network, self.scale))
