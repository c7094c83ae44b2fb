"""S^2-Guidance (Chen et al. 2025, arXiv 2508.12880): away from the network without one of its blocks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers import Around, Solver


class Away(nn.Module):
    """out + scale (out - out'), where out' is without the block that `number` of the call chooses."""

    def __init__(self, network: nn.Module, blocks: list[str], scale: float, number: Callable[[int], float]) -> None:
        super().__init__()
        self.network, self.blocks, self.scale, self.number, self.calls = network, blocks, scale, number, 0

    def forward(self, x: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        out = self.network(x, t, **cond)
        block = self.network.get_submodule(self.blocks[int(self.number(self.calls) * len(self.blocks))])
        self.calls += 1
        with block.register_forward_hook(lambda _, given, result: given[0] if given[0].shape == result.shape else None):
            return out + self.scale * (out - self.network(x, t, **cond))


class DroppedBlocks(Around):
    """The solver `base` so guided; one block for all rows of a call."""

    def __init__(self, base: Solver, blocks: list[str], scale: float = 0.5) -> None:
        super().__init__(base)
        self.blocks, self.scale = blocks, scale

    def describe(self) -> str:
        return f"{self.base.describe()}-dropped{self.scale:g}-{len(self.blocks)}"

    def model(self, denoiser: Denoiser) -> Denoiser:
        numbers = torch.rand(4096, generator=torch.Generator().manual_seed(0)).tolist()
        return denoiser.with_network(Away(denoiser.network, self.blocks, self.scale, lambda k: numbers[k % 4096]))
