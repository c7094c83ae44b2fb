"""Offset noise (Guttenberg 2023), whose strength is itself random, so that plain noise is met too."""

from torch import Tensor

from diffusion_lab.diffusion import TrainingNoise


class RandomOffset(TrainingNoise):
    """eps + strength |u| z with u, z ~ N(0, 1): one u for each image, one z for each of its channels."""

    def __init__(self, strength: float = 0.1) -> None:
        self.strength = strength

    def noise(self, x0: Tensor | None, eps: Tensor, normal) -> Tensor:
        size = normal((len(eps), 1, 1, 1)).abs()
        return eps + self.strength * size * normal((*eps.shape[:2], 1, 1))
