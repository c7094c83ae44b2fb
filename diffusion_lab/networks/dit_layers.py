"""Layers of the diffusion transformer (Peebles and Xie 2023).

Symbols: B images, L tokens, D features of a token, c (B,D) what a block is conditioned on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.full_precision import in_full_precision
from diffusion_lab.networks.uvit import Attention


def sin_cos_positions(side: int, dim: int) -> Tensor:
    """Positions of a square of `side` x `side` tokens, row by row, from sines and cosines.

        w_k = 10000^(-k / (D/4)),   k = 0 .. D/4 - 1
        position(row, column) = [sin(column w), cos(column w), sin(row w), cos(row w)]

    Reference: Peebles and Xie 2023, section 3.2; the order is that of their code, the column first.

    Args:
        side: tokens per side.
        dim: D, a multiple of 4.

    Returns:
        (side^2, D) float32, computed in float64.
    """
    frequency = 10_000.0 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    angle = torch.arange(side, dtype=torch.float64)[:, None] * frequency
    axis = torch.cat([angle.sin(), angle.cos()], dim=1)  # (side, D/2)
    return torch.cat([axis.repeat(side, 1), axis.repeat_interleave(side, dim=0)], dim=1).float()


def norm(x: Tensor) -> Tensor:
    """LayerNorm over the features of a token, without weights, eps = 1e-6."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """norm(x) (1 + scale) + shift: (B,L,D), (B,D), (B,D) -> (B,L,D)."""
    return norm(x) * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    """Transformer block with adaptive layer norm: (B,L,D), (B,D) -> (B,L,D).

        (shift_1, scale_1, gate_1, shift_2, scale_2, gate_2) = Linear(c)
        h = x + gate_1 attention(norm(x) (1 + scale_1) + shift_1)
        out = h + gate_2 Linear(GELU(Linear(norm(h) (1 + scale_2) + shift_2)))      4 D features inside

    GELU is the approximation by tanh. c is SiLU(time + label), which the network computes once for all blocks.

    Args:
        dim: D.
        num_heads: attention heads, a divisor of D.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = Attention(dim, num_heads, qkv_bias=True)
        self.hidden = nn.Linear(dim, 4 * dim)
        self.out = nn.Linear(4 * dim, dim)
        self.modulation = nn.Linear(dim, 6 * dim)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(c).chunk(6, dim=1)
        h = x + gate_1[:, None] * self.attention(modulate(x, shift_1, scale_1))
        inner = F.gelu(self.hidden(modulate(h, shift_2, scale_2)), approximate="tanh")
        return h + gate_2[:, None] * self.out(inner)


class LastLayer(nn.Module):
    """Linear(norm(x) (1 + scale) + shift), (shift, scale) = Linear(c): (B,L,D), (B,D) -> (B,L,features)."""

    def __init__(self, dim: int, features: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, features)
        self.modulation = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale = self.modulation(c).chunk(2, dim=1)
        return in_full_precision(self.out, modulate(x, shift, scale))
