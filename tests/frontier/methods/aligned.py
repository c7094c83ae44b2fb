"""REPA (Yu et al. 2025): features of the denoiser are aligned with those of an encoder of clean images."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.auxiliary import Auxiliary, Frozen
from diffusion_lab.diffusion import Step


def random_encoder(channels: int, width: int = 16) -> nn.Module:
    """Two random convolutions, the same for every run: a stand-in for a trained encoder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1), nn.SiLU(), nn.Conv2d(width, width, 3, 2, 1))


class Aligned(Auxiliary):
    """-cosine of h(z) and f(x0) at each place, with z of a layer, h a trained projector and f the frozen encoder."""

    def __init__(self, layer: str, width: int, channels: int, weight: float = 0.5, ramp: int = 0, stop=None) -> None:
        super().__init__(weight, ramp, stop)
        self.layers, self.teacher = (layer,), Frozen(random_encoder(channels))
        self.projector = nn.Sequential(nn.Conv2d(width, 32, 1), nn.SiLU(), nn.Conv2d(32, 16, 1))

    def rows(self, step: Step) -> Tensor:
        wanted, found = self.teacher(step.x0), self.projector(step.features[self.layers[0]])
        found = F.interpolate(found, wanted.shape[-2:], mode="bilinear")
        return -F.cosine_similarity(found, wanted, dim=1).flatten(1).mean(1)
