"""A curriculum over images: rough images count only later in training.

The order of the images is not a part that a method can bring, so hard images are drawn as often, with weight 0.
"""

from dataclasses import replace

import torch
from torch import Tensor

from diffusion_lab.training import DiffusionModel, DiffusionModule, Pairs


def roughness(x0: Tensor) -> Tensor:
    """(b,) mean |difference| of neighbouring pixels, how hard an image is."""
    return x0.diff(dim=-1).abs().flatten(1).mean(1) + x0.diff(dim=-2).abs().flatten(1).mean(1)


class PacedStep(DiffusionModule):
    """Weight 1 where the roughness is at most start + (1 - start) k/steps times `hardest`, after k steps, else 0."""

    start, steps, hardest = 0.5, 1000, 1.2

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Pairs:
        pairs = super().pair(x0, cond)
        share = self.start + (1 - self.start) * min(1.0, self.position.step / self.steps)
        easy = roughness(x0) <= (share * self.hardest if share < 1 else torch.inf)
        return replace(pairs, weight=pairs.weight * easy)


class Curriculum(DiffusionModel):
    """A denoiser that is trained with it."""

    trains = PacedStep
