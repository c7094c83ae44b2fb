"""Layers of BigGAN (Brock et al. 2018, appendix B).

Every affine map has orthogonal initial weights and spectral norm: W is divided by its largest singular value, of which
one power iteration per call keeps an estimate (Miyato et al. 2018). The estimate is a buffer, so it is in a checkpoint.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

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


class Attention(nn.Module):
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
