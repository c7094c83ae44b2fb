"""K noises for each image in one step, whose losses are averaged: fewer images, less variance."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


@dataclass(frozen=True)
class Many(Pairs):
    """Pairs with (b,C,H,W) of further noise each."""

    more: tuple[Tensor, ...]


class ManyStep(DiffusionModule):
    """The mean over K = 3 noises at one timestep; samplers see the mean too."""

    count = 3

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Many:
        more = tuple(self.noise(x0, draw) for draw in range(1, self.count))
        return Many(**vars(super().pair(x0, cond)), more=more)

    def losses(self, pairs: Many) -> Losses:
        each = [super(ManyStep, self).losses(replace(pairs, eps=eps)) for eps in (pairs.eps, *pairs.more)]
        loss, objective = (torch.stack([getattr(one, name) for one in each]).mean(0) for name in ("loss", "objective"))
        return replace(each[0], loss=loss, objective=objective)


class KNoises(DiffusionModel):
    """A denoiser that is trained with it."""

    trains = ManyStep
