"""BigGAN (Brock, Donahue and Simonyan 2018) at a small size: residual blocks, spectral norm, attention, classes.

Symbols: Z numbers of a latent, E of a class's embedding, C channels of an image, s_0 > ... > s_L sides of feature maps.

Every affine map has orthogonal initial weights and spectral norm: W is divided by its largest singular value, of which
one power iteration per call keeps an estimate (Miyato et al. 2018). The estimate is a buffer, so it is in a checkpoint.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from diffusion_lab.arguments import check_integer
from diffusion_lab.networks.adversarial import AdversarialLoss, AdversarialNetworks, Generator, Hinge, halved
from diffusion_lab.networks.checks import check_classes, check_label

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d, nn.Embedding)


def normalised(layer: Layer) -> Layer:
    """The layer with orthogonal initial weights, no initial bias, and spectral norm."""
    nn.init.orthogonal_(layer.weight)
    bias = getattr(layer, "bias", None)
    if bias is not None:
        nn.init.zeros_(bias)
    spectral_norm(layer, eps=1e-4)
    return layer


def batch_norm(channels: int, affine: bool = True) -> nn.BatchNorm2d:
    """Batch norm with BigGAN's eps."""
    return nn.BatchNorm2d(channels, eps=1e-4, affine=affine)


class ConditionalNorm(nn.Module):
    """Batch norm whose scale and shift are functions of a condition: (B,C,H,W), (B,E) -> (B,C,H,W).

        (1 + linear(c)) norm(x) + linear(c)

    Args:
        channels: C.
        condition: E.
    """

    def __init__(self, channels: int, condition: int) -> None:
        super().__init__()
        self.norm = batch_norm(channels, affine=False)
        self.scale = normalised(nn.Linear(condition, channels, bias=False))
        self.shift = normalised(nn.Linear(condition, channels, bias=False))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        return (1 + self.scale(condition)[:, :, None, None]) * self.norm(x) + self.shift(condition)[:, :, None, None]


class UpBlock(nn.Module):
    """Residual block that doubles the side: (B,in,s,s), (B,E) -> (B,out,2s,2s).

        conv1x1(double(x)) + conv(ReLU(norm(conv(double(ReLU(norm(x)))))))

    Args:
        inputs: channels of x.
        outputs: channels of the result.
        condition: E.
    """

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ConditionalNorm(inputs, condition), ConditionalNorm(outputs, condition)
        self.conv1 = normalised(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.conv2 = normalised(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = normalised(nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        h = self.conv1(F.interpolate(self.norm1(x, condition).relu(), scale_factor=2))
        h = self.conv2(self.norm2(h, condition).relu())
        return self.skip(F.interpolate(x, scale_factor=2)) + h


class DownBlock(nn.Module):
    """Residual block that halves the side: (B,in,2s,2s) -> (B,out,s,s).

        mean2x2(conv1x1(x) + conv(ReLU(conv(ReLU(x)))))

    Args:
        inputs: channels of x.
        outputs: channels of the result.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = normalised(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.conv2 = normalised(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = normalised(nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(self.conv1(x.relu()).relu())
        return F.avg_pool2d(self.skip(x) + h, 2)


class BigGANAttention(nn.Module):
    """Self-attention over pixels (Zhang et al. 2018): (B,C,s,s) -> (B,C,s,s).

        x + gamma conv(v softmax(k^T q)),   q, k with C/8 channels, v with C/2; k and v of every second pixel

    gamma starts at 0. Softmax and products are written out, because fused attention has no second derivative.

    Args:
        channels: C >= 8.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner, value = channels // 8, channels // 2
        self.query = normalised(nn.Conv2d(channels, inner, 1, bias=False))
        self.key = normalised(nn.Conv2d(channels, inner, 1, bias=False))
        self.value = normalised(nn.Conv2d(channels, value, 1, bias=False))
        self.out = normalised(nn.Conv2d(value, channels, 1, bias=False))
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x).flatten(2)
        k = F.max_pool2d(self.key(x), 2).flatten(2)
        v = F.max_pool2d(self.value(x), 2).flatten(2)
        weights = torch.einsum("bcj,bci->bji", k, q).softmax(1)
        h = torch.einsum("bcj,bji->bci", v, weights).unflatten(2, x.shape[2:])
        return x + self.gamma * self.out(h)


class BigGANGenerator(Generator):
    """(B,Z), label (B,) -> (B,C,s_0,s_0).

        h = linear(z) as s_L x s_L pixels,   h = up(h, [z, e]) until s_0 x s_0,   G = tanh(conv(ReLU(norm(h))))

    z and the embedding e of the class set scale and shift of every norm, and attention follows one of the blocks.

    Args:
        channels: C.
        sizes: s_0 .. s_L.
        base_channels: at s_0, doubled at each smaller size.
        latent_dim: Z.
        attention: side at which there is attention; None for none.
        class_dim: E.
        num_classes: None for images without labels.
    """

    def __init__(
        self,
        channels: int,
        sizes: list[int],
        base_channels: int,
        latent_dim: int,
        attention: int | None,
        class_dim: int,
        num_classes: int | None,
    ) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.num_classes = num_classes
        self.embedding = None if num_classes is None else nn.Embedding(num_classes, class_dim)
        condition = latent_dim + (0 if num_classes is None else class_dim)
        widths = [base_channels * 2**level for level in range(len(sizes))]
        self.first = normalised(nn.Linear(latent_dim, widths[-1] * sizes[-1] ** 2))
        self.start = widths[-1], sizes[-1], sizes[-1]
        self.blocks = nn.ModuleList()
        for level in range(len(sizes) - 1, 0, -1):
            self.blocks.append(UpBlock(widths[level], widths[level - 1], condition))
            self.blocks.append(BigGANAttention(widths[level - 1]) if sizes[level - 1] == attention else nn.Identity())
        self.norm = batch_norm(widths[0])
        self.last = normalised(nn.Conv2d(widths[0], channels, 3, padding=1))

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        check_label(label, self.num_classes)
        condition = z if self.embedding is None else torch.cat([z, self.embedding(label)], 1)
        h = self.first(z).unflatten(1, self.start)
        for block in self.blocks:
            h = block(h, condition) if isinstance(block, UpBlock) else block(h)
        return self.last(self.norm(h).relu()).tanh()


class BigGANDiscriminator(nn.Module):
    """(B,C,s_0,s_0), label (B,) -> (B,).

        f = sum over pixels of ReLU(down(... down(x))),   D(x, y) = linear(f) + <embedding(y), f>

    The second term is the projection of Miyato and Koyama (2018), and is absent without labels.

    Args:
        channels, sizes, base_channels, attention, num_classes: as of the generator.
    """

    def __init__(
        self, channels: int, sizes: list[int], base_channels: int, attention: int | None, num_classes: int | None
    ) -> None:
        super().__init__()
        widths = [base_channels * 2**level for level in range(len(sizes))]
        self.first = normalised(nn.Conv2d(channels, widths[0], 3, padding=1))
        blocks: list[nn.Module] = []
        for level in range(1, len(sizes)):
            blocks.append(BigGANAttention(widths[level - 1]) if sizes[level - 1] == attention else nn.Identity())
            blocks.append(DownBlock(widths[level - 1], widths[level]))
        self.blocks = nn.Sequential(*blocks)
        self.linear = normalised(nn.Linear(widths[-1], 1))
        self.num_classes = num_classes
        self.embedding = None if num_classes is None else normalised(nn.Embedding(num_classes, widths[-1]))

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        check_label(label, self.num_classes)
        f = self.blocks(self.first(x)).relu().sum((2, 3))
        logit = self.linear(f)[:, 0]
        return logit if self.embedding is None else logit + (self.embedding(label) * f).sum(1)


class BigGAN(AdversarialNetworks):
    """The networks of BigGAN (appendix B).

    Differs from Brock et al.: the whole z conditions every block instead of a part of its own, because a small latent
    has no parts to spare; the trunks are as wide as `base_channels` says; the embedding of the classes keeps PyTorch's
    initial numbers, N(0, 1), instead of orthogonal ones; the discriminator begins with a convolution instead of a
    block on the image, and has no last block that keeps the size; and no orthogonal regularisation is used.

    Args:
        in_channels: C.
        out_channels: C.
        image_size: pixels per side, which is halved as often as `smallest` allows.
        latent_dim: Z >= 1, numbers of a latent; 120 in the paper.
        base_channels: channels at full size, >= 8; twice as many at each smaller size.
        smallest: pixels per side of the smallest feature map, >= 1; 4 in the paper.
        attention_resolution: pixels per side of the feature map that has attention in both networks; None for none.
        class_dim: E >= 1, numbers of a class's embedding; 128 in the paper.
        num_classes: None for images without labels.
        loss: `Hinge` in the paper.

    Raises:
        ValueError: a number out of range, or an attention resolution that no feature map has.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        latent_dim: int = 64,
        base_channels: int = 32,
        smallest: int = 4,
        attention_resolution: int | None = None,
        class_dim: int = 32,
        num_classes: int | None = None,
        loss: AdversarialLoss | None = None,
    ) -> None:
        for name, value in (("latent_dim", latent_dim), ("smallest", smallest), ("class_dim", class_dim)):
            check_integer(name, value, 1, "give a positive number")
        check_integer("base_channels", base_channels, 8, "use 32; attention has an eighth of them")
        check_classes(num_classes)
        sizes = halved(image_size, smallest)
        if attention_resolution not in (None, *sizes[:-1]):
            raise ValueError(
                f"attention_resolution={attention_resolution} must be null or one of "
                f"{', '.join(map(str, sizes[:-1]))}, the sides of these networks; use {sizes[0]}"
            )
        place = attention_resolution
        super().__init__(
            BigGANGenerator(out_channels, sizes, base_channels, latent_dim, place, class_dim, num_classes),
            BigGANDiscriminator(in_channels, sizes, base_channels, place, num_classes),
            loss or Hinge(),
        )
