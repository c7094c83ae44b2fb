"""Self-representation alignment (Jiang et al. 2025, arXiv 2505.02831): with a later layer of the average weights."""

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class SelfAlignedStep(DiffusionModule):
    """Adds weight |h(z) - z'|, z of `layer` at t and z' of `later` of the averaged network at an earlier time."""

    layer, later, width, decay, weight = "encoder.1.blocks.0", "middle.1", 16, 0.99, 0.2

    def __init__(self, denoiser, *parts, **named) -> None:
        super().__init__(denoiser, *parts, **named)
        self.teacher = copy.deepcopy(denoiser.network).requires_grad_(False)
        self.projector = nn.Conv2d(self.width, self.width, 1)

    @torch.no_grad()
    def follow(self) -> None:
        if self.position.micro == 0:
            for mean, now in zip(self.teacher.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(now, 1 - self.decay)

    def feature(self, network: nn.Module, layer: str, kept: list[Tensor]):
        return network.get_submodule(layer).register_forward_hook(lambda *seen: kept.append(seen[2]))

    def losses(self, pairs: Pairs) -> Losses:
        self.follow()
        kept: list[Tensor] = []
        with self.feature(self.network, self.layer, kept):
            usual = super().losses(pairs)
        back = 0.2 * self.denoiser.num_timesteps * self.context(pairs.x0, pairs.cond).uniform(len(pairs.t))
        earlier = (pairs.t - back.long()).clamp(min=0)
        x = self.denoiser.schedule.perturb(pairs.x0, pairs.eps, earlier)
        with torch.no_grad(), self.feature(self.teacher, self.later, kept):
            self.teacher(x, earlier, **pairs.cond)
        distance = F.smooth_l1_loss(self.projector(kept[0]), kept[1], reduction="none").flatten(1).mean(1)
        return replace(usual, objective=usual.objective + self.weight * distance)


class SelfAligned(DiffusionModel):
    """A denoiser that is trained with it."""

    trains = SelfAlignedStep
