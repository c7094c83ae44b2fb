"""Layers of OpenAI's U-Nets (Nichol and Dhariwal 2021; Dhariwal and Nichol 2021).

Symbols: B images, C channels, H x W pixels, E features of the time embedding, N attention heads.

Weights and biases start as PyTorch starts them. The last layer of every residual branch and of the network starts at
0, so that at the start each branch adds nothing and the network answers exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.kernels import Dropout, attend
from diffusion_lab.networks.layers import group_norm

LAYOUTS = ("legacy", "new")
EPS = 1e-5  # of the group norms

Layer = TypeVar("Layer", bound=nn.Module)


def cos_sin_embedding(t: Tensor, dim: int, max_period: float = 10_000.0) -> Tensor:
    """Cosines and sines of t at frequencies from 1 down to almost 1/max_period.

        f_i = max_period^(-i / (dim/2)),   i = 0 .. dim/2 - 1
        embedding = [cos(t f_0), cos(t f_1), ..., sin(t f_0), sin(t f_1), ...]

    Args:
        t: (B,) timesteps, integers or reals.
        dim: even, at least 2.

    Returns:
        (B, dim) float32, whatever the type of t: bfloat16 cannot distinguish neighbouring timesteps.
    """
    half = dim // 2
    index = torch.arange(half, dtype=torch.float32, device=t.device)
    angles = t.float()[:, None] * torch.exp(-math.log(max_period) * index / half)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def zeroed(layer: Layer) -> Layer:
    """The layer with weight and bias 0."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def halve(x: Tensor) -> Tensor:
    """Mean of each 2x2 pixels: (B,C,H,W) -> (B,C,H/2,W/2)."""
    return F.avg_pool2d(x, 2)


def double(x: Tensor) -> Tensor:
    """Each pixel becomes 2x2: (B,C,H,W) -> (B,C,2H,2W)."""
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


class ADMResBlock(nn.Module):
    """Residual block with the time embedding in its middle: (B,in,H,W), (B,E) -> (B,out,H',W').

        h = conv(resample(SiLU(norm(x))))
        h = norm(h) (1 + a) + b,  (a, b) = Linear(e)       with scale_shift_norm
        h = norm(h + Linear(e))                            without
        out = skip(resample(x)) + conv_zero(dropout(SiLU(h)))

    Args:
        in_channels: of x.
        out_channels: of the result; where it differs from `in_channels`, skip is a 1x1 convolution.
        features: E; e is SiLU(time embedding), which the network computes once for all blocks.
        dropout: probability in [0, 1).
        scale_shift_norm: whether e scales and shifts what the norm gives, or is added before it.
        resample: `halve` or `double`; None keeps the size.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        features: int,
        dropout: float,
        scale_shift_norm: bool,
        resample: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.scale_shift_norm = scale_shift_norm
        self.resample = resample
        self.norm1 = group_norm(in_channels, EPS)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.modulation = nn.Linear(features, 2 * out_channels if scale_shift_norm else out_channels)
        self.norm2 = group_norm(out_channels, EPS)
        self.dropout = Dropout(dropout)
        self.conv2 = zeroed(nn.Conv2d(out_channels, out_channels, 3, padding=1))
        self.skip = nn.Identity() if in_channels == out_channels else nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        h = F.silu(self.norm1(x))
        if self.resample is not None:
            h, x = self.resample(h), self.resample(x)
        h = self.conv1(h)
        modulation = self.modulation(e)[:, :, None, None]
        if self.scale_shift_norm:
            scale, shift = modulation.chunk(2, dim=1)
            h = self.norm2(h) * (1 + scale) + shift
        else:
            h = self.norm2(h + modulation)
        return self.skip(x) + self.conv2(self.dropout(F.silu(h)))


class ADMAttention(nn.Module):
    """Self-attention over pixels with N heads of d = C/N channels: (B,C,H,W) -> (B,C,H,W).

        q, k, v = Linear(norm(x))
        out = x + Linear_zero(softmax(q k^T / sqrt(d)) v)

    The 3 C outputs of the first Linear have one of two orders, which matters for pretrained weights only:

        "legacy"  head by head, each with its q, k, v       (improved diffusion, ADM but for 64 x 64, latent diffusion)
        "new"     all q, all k, all v, each head by head    (ADM for ImageNet 64 x 64)

    The published code divides q and k by d^(1/4) each, which is the same up to rounding.

    Args:
        channels: C.
        heads: N, a divisor of C.
        layout: "legacy" or "new".
    """

    def __init__(self, channels: int, heads: int, layout: str) -> None:
        super().__init__()
        self.heads = heads
        self.layout = layout
        self.norm = group_norm(channels, EPS)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = zeroed(nn.Linear(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        # (B,HW,C) from here: q, k and v are contiguous in their channels, as the fused kernels want them.
        qkv = self.qkv(self.norm(x).flatten(2).transpose(1, 2))
        if self.layout == "legacy":
            q, k, v = qkv.unflatten(2, (self.heads, 3, -1)).unbind(3)
        else:
            q, k, v = qkv.unflatten(2, (3, self.heads, -1)).unbind(2)
        h = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return x + self.out(h.transpose(1, 2).flatten(2)).transpose(1, 2).reshape(x.shape)


class ADMDownsample(nn.Module):
    """3x3 convolution with stride 2: (B,C,H,W) -> (B,C,H/2,W/2), H and W even.

    Differs from the DDPM U-Net's: zeros are padded on all four sides.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        """`e` is not used: it gives the layer the signature of an ADMResBlock."""
        return self.conv(x)
