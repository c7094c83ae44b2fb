"""Layers of the DDPM U-Net (Ho et al. 2020, appendix B).

Symbols: B images, C channels, H x W pixels, E features of the time embedding.

All weights start uniform (Glorot, 2010) in +-gain sqrt(6 / (fan_in + fan_out)), all biases at 0. The last layer of
every residual branch and of the network has gain `NEAR_ZERO`, so that at the start each branch adds almost nothing
and the network answers almost 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.kernels import Dropout, GroupNorm, attend

NEAR_ZERO = math.sqrt(1e-10)
_MAX_GROUPS = 32
_MIN_GROUP_CHANNELS = 4


def timestep_embedding(t: Tensor, dim: int, max_period: float = 10_000.0) -> Tensor:
    """Sines and cosines of t at frequencies from 1 down to 1/max_period.

        f_i = max_period^(-i / (dim/2 - 1)),   i = 0 .. dim/2 - 1
        embedding = [sin(t f_0), sin(t f_1), ..., cos(t f_0), cos(t f_1), ...]

    Differs from Vaswani et al. (2017) and the U-Nets of improved-diffusion: sines come first and the exponent is
    divided by dim/2 - 1, not dim/2, as in DDPM's code.

    Args:
        t: (B,) timesteps, integers or reals.
        dim: even, at least 4.

    Returns:
        (B, dim) float32, whatever the type of t: bfloat16 cannot distinguish neighbouring timesteps.
    """
    half = dim // 2
    index = torch.arange(half, dtype=torch.float32, device=t.device)
    angles = t.float()[:, None] * torch.exp(index * (-math.log(max_period) / (half - 1)))
    return torch.cat([angles.sin(), angles.cos()], dim=1)


@functools.cache
def num_groups(channels: int) -> int:
    """Groups of a GroupNorm: the largest divisor of `channels` that is <= 32 and leaves >= 4 channels in a group.

    32 for 128 channels and their multiples, as published. Differs from DDPM for narrower layers: it has 32 groups
    there too, hence one or two channels in a group, which on small images leaves too few numbers to normalise by.
    """
    groups = max(1, min(_MAX_GROUPS, channels // _MIN_GROUP_CHANNELS))
    while channels % groups:
        groups -= 1
    return groups


def group_norm(channels: int, eps: float = 1e-6) -> GroupNorm:
    """GroupNorm with `num_groups(channels)` groups."""
    return GroupNorm(num_groups(channels), channels, eps)


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1, gain: float = 1.0) -> nn.Conv2d:
    """Convolution that keeps the size at stride 1 and expects a padded input at stride 2."""
    layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2 if stride == 1 else 0)
    nn.init.xavier_uniform_(layer.weight, gain)
    nn.init.zeros_(cast(Tensor, layer.bias))
    return layer


def linear(in_features: int, out_features: int) -> nn.Linear:
    """Affine map with Glorot-uniform weight."""
    layer = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class TimeEmbedding(nn.Module):
    """affine(SiLU(affine(waves(t)))): (B,) -> (B,E), or of a map (B,1,H,W) -> (B,E,H,W).

    Args:
        dim: of the waves.
        features: E.
        waves: (t (B,), dim) -> (B, dim).
        affine: (inputs, outputs) -> an affine map with its initial weights.
    """

    def __init__(
        self,
        dim: int,
        features: int,
        waves: Callable[[Tensor, int], Tensor] = timestep_embedding,
        affine: Callable[[int, int], nn.Linear] = linear,
    ) -> None:
        super().__init__()
        self.dim, self.waves = dim, waves
        self.hidden = affine(dim, features)
        self.out = affine(features, features)

    def forward(self, t: Tensor) -> Tensor:
        waves = self.waves(t.flatten(), self.dim).to(self.hidden.weight.dtype)
        e = self.out(F.silu(self.hidden(waves)))
        return e if t.ndim == 1 else e.unflatten(0, (len(t), *t.shape[2:])).movedim(-1, 1)


class ResBlock(nn.Module):
    """Residual block with a shift by the time embedding: (B,in,H,W), (B,E) -> (B,out,H,W).

        h = conv(SiLU(norm(x))) + Linear(e)
        out = skip(x) + conv_near_zero(dropout(SiLU(norm(h))))

    e may be a map (B,E,H',W'), H' a multiple of H: each pixel of h has the mean of e over those that it stands for.

    Args:
        in_channels: of x.
        out_channels: of the result; where it differs from `in_channels`, skip is a 1x1 convolution.
        features: E; e is SiLU(time embedding), which the network computes once for all blocks.
        dropout: probability in [0, 1).
    """

    def __init__(self, in_channels: int, out_channels: int, features: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = group_norm(in_channels)
        self.conv1 = conv(in_channels, out_channels, 3)
        self.shift = linear(features, out_channels)
        self.norm2 = group_norm(out_channels)
        self.dropout = Dropout(dropout)
        self.conv2 = conv(out_channels, out_channels, 3, gain=NEAR_ZERO)
        self.skip = nn.Identity() if in_channels == out_channels else conv(in_channels, out_channels, 1)

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self._shift(e, x)
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(h))))

    def _shift(self, e: Tensor, x: Tensor) -> Tensor:
        if e.ndim == 2:
            return self.shift(e)[:, :, None, None]
        return self.shift(F.avg_pool2d(e, e.shape[-1] // x.shape[-1]).movedim(1, -1)).movedim(-1, 1)


class Attention(nn.Module):
    """Self-attention over pixels with one head: (B,C,H,W) -> (B,C,H,W).

        q, k, v = 1x1 conv(norm(x))
        out = x + 1x1 conv_near_zero(softmax(q k^T / sqrt(C)) v)

    Pixels have no position of their own: the convolutions around it distinguish them.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = group_norm(channels)
        self.qkv = conv(channels, 3 * channels, 1)
        self.out = conv(channels, channels, 1, gain=NEAR_ZERO)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        # (B, 1 head, pixels, channels of q, k and v): contiguous in the last axis, as the fused kernels want it.
        qkv = self.qkv(self.norm(x)).flatten(2).transpose(1, 2)[:, None].contiguous()
        h = attend(*qkv.chunk(3, dim=-1))
        return x + self.out(h[:, 0].transpose(1, 2).reshape(batch, channels, height, width))


class Downsample(nn.Module):
    """3x3 convolution with stride 2: (B,C,H,W) -> (B,C,H/2,W/2), H and W even.

    Zeros are padded at the right and the bottom only, TensorFlow's SAME padding, as in DDPM's code.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = conv(channels, channels, 3, stride=2)

    def forward(self, x: Tensor, e: Tensor | None = None) -> Tensor:
        """`e`, which blocks that change the size take, is not used."""
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    """Each pixel becomes 2x2, then a 3x3 convolution, without the large image: (B,C,H,W) -> (B,O,2H,2W).

    A transposed convolution of stride 2 with a 4x4 kernel: per axis, weights w_0 w_1 w_2 on pixels that stand twice are

        w_2,  w_1 + w_2,  w_0 + w_1,  w_0        on what a pixel gives to its two places and to those beside them

    Four weights of a pixel in place of nine per place are 4/9 of the operations, and the sums differ by rounding alone.

    Args:
        conv: the 3x3 convolution, with padding 1.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, e: Tensor | None = None) -> Tensor:
        """`e`, which blocks that change the size take, is not used."""
        kernel = _spread(_spread(self.conv.weight, 2), 3).transpose(0, 1)
        return F.conv_transpose2d(x, kernel, self.conv.bias, stride=2, padding=1)


def _spread(weight: Tensor, dim: int) -> Tensor:
    """w_0 w_1 w_2 -> w_2, w_1 + w_2, w_0 + w_1, w_0 along `dim`."""
    first, middle, last = weight.unbind(dim)
    return torch.stack([last, middle + last, first + middle, first], dim)
