"""Dispersive loss in its hinge form (Wang and He 2025): features of different images at least a margin apart."""

import torch
from torch import Tensor

from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.diffusion import Step


class Dispersed(Auxiliary):
    """mean over j of max(0, margin - |z_i - z_j|^2/D)^2."""

    of_batch = True

    def __init__(self, layer: str, margin: float = 1.0, weight: float = 0.25, ramp: int = 0, stop=None) -> None:
        super().__init__(weight, ramp, stop)
        self.layers, self.margin = (layer,), margin

    def rows(self, step: Step) -> Tensor:
        z = step.gather(step.features[self.layers[0]].flatten(1).float())
        square = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").square() / z.shape[1]
        return step.of_all((self.margin - square).clamp(min=0).square().mean())
