"""The two networks of a generative adversarial network (Goodfellow et al. 2014), and what each of them is trained for.

Symbols: z latent, x image, D(x) the discriminator's logit that x is a real image, G(z) a generated one.

    generator       z (B,Z) -> (B,C,H,W) in [-1, 1]
    discriminator   x (B,C,H,W) -> (B,)

Both take the keyword `label` (B,) if there are classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn


class AdversarialLoss(ABC):
    """The losses of both networks, from logits."""

    @abstractmethod
    def discriminator(self, real: Tensor, fake: Tensor) -> Tensor:
        """D(x) (B,) and D(G(z)) (B,) -> the discriminator's loss (B,)."""

    @abstractmethod
    def generator(self, fake: Tensor) -> Tensor:
        """D(G(z)) (B,) -> the generator's loss (B,)."""


class NonSaturating(AdversarialLoss):
    """Cross-entropy, with the generator's loss that does not saturate (Goodfellow et al. 2014, section 3), as in DCGAN:

    discriminator   -log s(D(x)) - log(1 - s(D(G(z)))),   s the logistic function
    generator       -log s(D(G(z)))
    """

    def discriminator(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.softplus(-real) + F.softplus(fake)

    def generator(self, fake: Tensor) -> Tensor:
        return F.softplus(-fake)


class Hinge(AdversarialLoss):
    """The hinge loss (Miyato et al. 2018, equations 16 and 17), as in BigGAN:

    discriminator   max(0, 1 - D(x)) + max(0, 1 + D(G(z)))
    generator       -D(G(z))
    """

    def discriminator(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.relu(1 - real) + F.relu(1 + fake)

    def generator(self, fake: Tensor) -> Tensor:
        return -fake


class Generator(nn.Module):
    """z (B,Z) -> images (B,C,H,W) in [-1, 1].

    Attributes:
        latent_dim: Z.
    """

    latent_dim: int


class AdversarialNetworks(nn.Module):
    """A generator, its discriminator and their losses; a subclass builds the two.

    Args:
        generator: z (B,Z) -> images.
        discriminator: images -> logits (B,).
        loss: of both.
    """

    def __init__(self, generator: Generator, discriminator: nn.Module, loss: AdversarialLoss) -> None:
        super().__init__()
        self.generator, self.discriminator, self.loss = generator, discriminator, loss


def halved(image_size: int, smallest: int) -> list[int]:
    """Sides of the feature maps: `image_size`, halved while it is even and the half is at least `smallest`.

    Raises:
        ValueError: the side cannot be halved once.
    """
    sizes = [image_size]
    while sizes[-1] % 2 == 0 and sizes[-1] // 2 >= smallest:
        sizes.append(sizes[-1] // 2)
    if len(sizes) == 1:
        raise ValueError(
            f"smallest={smallest} must be at most half of the images' {image_size} pixels per side, which must be "
            "even; use smallest=4 and images of 8, 28, 32 or 64 pixels"
        )
    return sizes
