"""DCGAN (Radford, Metz and Chintala 2015): a generator and a discriminator of strided convolutions.

Symbols: Z numbers of a latent, C channels of an image, s_0 > ... > s_L sides of the feature maps, s_0 the image's.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.networks.adversarial import AdversarialLoss, AdversarialNetworks, Generator, NonSaturating, halved

WEIGHT_SCALE = 0.02  # standard deviation of all initial weights (section 4)
SLOPE = 0.2  # of LeakyReLU below 0 (section 4)


class DCGANGenerator(Generator):
    """Transposed convolutions from one vector to an image: (B,Z) -> (B,C,s_0,s_0).

        h_L = ReLU(norm(transposed convolution of z to s_L x s_L))
        h_l = ReLU(norm(4x4 transposed convolution of stride 2 of h_(l+1))),   G(z) = tanh(the last one, without norm)

    Args:
        channels: C.
        sizes: s_0 .. s_L.
        base_channels: of h_1; each smaller feature map has twice as many as the one above it.
        latent_dim: Z.
    """

    def __init__(self, channels: int, sizes: list[int], base_channels: int, latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        widths = [base_channels * 2**level for level in range(len(sizes) - 1)]
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent_dim, widths[-1], sizes[-1], bias=False)]
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU()]
        for wide, narrow in zip(widths[::-1], widths[-2::-1], strict=False):
            layers += [nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(widths[0], channels, 4, 2, 1))
        self.apply(_draw_weights)

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z[:, :, None, None]).tanh()


class DCGANDiscriminator(nn.Module):
    """Strided convolutions from an image to one logit: (B,C,s_0,s_0) -> (B,).

        h_1 = LeakyReLU(4x4 convolution of stride 2 of x)
        h_(l+1) = LeakyReLU(norm(4x4 convolution of stride 2 of h_l))
        D(x) = convolution of h_L over its whole side

    Args:
        channels: C.
        sizes: s_0 .. s_L.
        base_channels: of h_1, doubled at each further feature map.
    """

    def __init__(self, channels: int, sizes: list[int], base_channels: int) -> None:
        super().__init__()
        widths = [base_channels * 2**level for level in range(len(sizes) - 1)]
        layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 4, 2, 1), nn.LeakyReLU(SLOPE)]
        for narrow, wide in zip(widths, widths[1:], strict=False):
            layers += [nn.Conv2d(narrow, wide, 4, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.LeakyReLU(SLOPE)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, sizes[-1]))
        self.apply(_draw_weights)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten()


class DCGAN(AdversarialNetworks):
    """The networks of DCGAN (section 3), for images of one class or of unknown classes.

    Differs from Radford et al.: widths count from the largest feature map, so that a smaller image has fewer feature
    maps and not narrower ones; for 64 x 64 pixels with base_channels=128 the generator is the published one.

    Args:
        in_channels: C.
        out_channels: C.
        image_size: pixels per side, which is halved as often as `smallest` allows.
        latent_dim: Z >= 1, numbers of a latent; 100 in the paper.
        base_channels: channels of the largest feature map, >= 1; twice as many at each smaller size; 128 in the paper's
            generator.
        smallest: pixels per side of the smallest feature map, >= 1; 4 in the paper.
        loss: `NonSaturating` in the paper.

    Raises:
        ValueError: a number out of range, or a side that cannot be halved.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        latent_dim: int = 100,
        base_channels: int = 64,
        smallest: int = 4,
        loss: AdversarialLoss | None = None,
    ) -> None:
        for name, value in (("latent_dim", latent_dim), ("base_channels", base_channels), ("smallest", smallest)):
            check_integer(name, value, 1, "give a positive number")
        sizes = halved(image_size, smallest)
        super().__init__(
            DCGANGenerator(out_channels, sizes, base_channels, latent_dim),
            DCGANDiscriminator(in_channels, sizes, base_channels),
            loss or NonSaturating(),
        )


@torch.no_grad()
def _draw_weights(layer: nn.Module) -> None:
    """Section 4: weights from N(0, 0.02^2); those of a norm from N(1, 0.02^2), as in the published code; biases 0."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
        mean = 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0
        cast(Tensor, layer.weight).normal_(mean, WEIGHT_SCALE)
        if layer.bias is not None:
            layer.bias.zero_()
