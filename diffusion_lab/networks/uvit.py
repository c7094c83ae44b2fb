"""U-ViT: a transformer over patches with long skips (Bao et al. 2023).

    tokens    [label] [time] patches, plus a learned position for each
    in        depth/2 x UViTBlock                                       results are kept
    middle    UViTBlock
    out       depth/2 x UViTBlock(Linear([h, kept]))                    newest first
    LayerNorm, Linear to the p x p x C numbers of each patch, 3x3 convolution

Symbols: B images of C channels and H x W pixels, p pixels per side of a patch, L = (H/p) (W/p) tokens, D features of a
token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_integer
from diffusion_lab.networks.adm_layers import cos_sin_embedding
from diffusion_lab.networks.checks import check_classes, check_label
from diffusion_lab.networks.kernels import attend, in_full_precision, run


def from_patches(numbers: Tensor, patch_size: int, rows: int) -> Tensor:
    """(B,L,p p C) -> (B,C,H,W), `rows` patches high; a patch lists its pixels row by row, each with its C channels."""
    p = patch_size
    grid = numbers.unflatten(1, (rows, -1)).unflatten(3, (p, p, -1))
    columns, channels = grid.shape[2], grid.shape[5]
    # One reshape, hence a copy: FSDP warns of a network whose output is a view.
    return grid.permute(0, 5, 1, 3, 2, 4).reshape(len(grid), channels, rows * p, columns * p)


def check_patches(in_channels: int, out_channels: int, image_size: int, patch_size: int) -> None:
    """Raise ValueError unless patches of `patch_size` pixels fill images of `image_size` pixels."""
    check_integer("in_channels", in_channels, 1, "use the channels of the images")
    check_integer("out_channels", out_channels, 1, "use the channels of the images")
    check_integer("patch_size", patch_size, 1, "use 2 for images of 32 pixels")
    if image_size < 1 or image_size % patch_size:
        divisors = [p for p in range(1, image_size + 1) if image_size % p == 0]
        nearest = min(divisors, key=lambda p: abs(p - patch_size), default=1)
        raise ValueError(
            f"patch_size={patch_size} must divide image_size={image_size}; use patch_size={nearest}, or images of "
            f"{patch_size * max(1, round(image_size / patch_size))} pixels, or network=unet_any, which fits any size"
        )


class UViT(nn.Module):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size).

    The defaults are U-ViT-S/2 for CIFAR-10: 44,255,328 parameters.

    Linear weights and positions start normal with standard deviation 0.02, Linear biases at 0, convolutions and label
    tokens as PyTorch starts them. Time enters as one token of cosines and sines, without a learned layer of its own.

    Reference: Bao et al., "All are worth words: a ViT backbone for diffusion models", 2023, section 3 and table 1.

    Args:
        in_channels: channels of x_t.
        out_channels: channels of the output: image channels x (heads of the prediction + variance channels).
        image_size: pixels per side, a multiple of `patch_size`.
        patch_size: p, pixels per side of a patch; divides `image_size`.
        dim: D, features of a token, an even multiple of `num_heads`.
        depth: blocks beside the middle one, half of them before it; even.
        num_heads: attention heads.
        conv: whether a 3x3 convolution over the pixels stands last.
        num_classes: number of class labels, which enter as a token; None: the network takes no label.
        checkpointing: whether training recomputes the activations of each block instead of storing them: less memory,
            about a third more time per step.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        patch_size: int = 2,
        dim: int = 512,
        depth: int = 12,
        num_heads: int = 8,
        conv: bool = True,
        num_classes: int | None = None,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        check_patches(in_channels, out_channels, image_size, patch_size)
        _check_blocks(dim, depth, num_heads)
        check_flag("conv", conv, "use true but for U-ViT-H")
        check_flag("checkpointing", checkpointing, "use true where the memory does not suffice")
        check_classes(num_classes)
        self.dim, self.patch_size, self.checkpointing = dim, patch_size, checkpointing

        self.patches = nn.Conv2d(in_channels, dim, patch_size, stride=patch_size)
        self.num_classes = num_classes
        self.label = None if num_classes is None else nn.Embedding(num_classes, dim)
        self.extras = 1 if num_classes is None else 2  # tokens that are no patches
        self.position = nn.Parameter(torch.zeros(1, self.extras + (image_size // patch_size) ** 2, dim))
        self.encoder = nn.ModuleList([UViTBlock(dim, num_heads) for _ in range(depth // 2)])
        self.middle = UViTBlock(dim, num_heads)
        self.decoder = nn.ModuleList([UViTSkipBlock(dim, num_heads) for _ in range(depth // 2)])
        self.norm_out = nn.LayerNorm(dim)
        self.pixels = nn.Linear(dim, patch_size**2 * out_channels)
        self.conv_out = nn.Conv2d(out_channels, out_channels, 3, padding=1) if conv else None

        nn.init.trunc_normal_(self.position, std=0.02)
        self.apply(_start)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) timesteps, label (B,) int64 in 0..num_classes-1 -> (B,out_channels,H,W)."""
        h = self._tokens(x, t, label)
        kept = []
        for block in self.encoder:
            h = run(block, h, recompute=self.checkpointing)
            kept.append(h)
        h = run(self.middle, h, recompute=self.checkpointing)
        for block in self.decoder:
            h = run(block, h, kept.pop(), recompute=self.checkpointing)
        image = self._image(in_full_precision(self.pixels, self.norm_out(h)), x)
        return image if self.conv_out is None else in_full_precision(self.conv_out, image)

    def _tokens(self, x: Tensor, t: Tensor, label: Tensor | None) -> Tensor:
        """(B,L,D), positions added."""
        check_label(label, self.num_classes)
        patches = in_full_precision(self.patches, x).flatten(2).transpose(1, 2)
        first = [] if self.label is None else [self.label(label)[:, None]]
        time = cos_sin_embedding(t, self.dim)[:, None].to(self.position.dtype)
        return torch.cat([*first, time, patches], dim=1) + self.position

    def _image(self, numbers: Tensor, x: Tensor) -> Tensor:
        """(B,L,p p C) -> (B,C,H,W), without the tokens that are no patches."""
        return from_patches(numbers[:, self.extras :], self.patch_size, x.shape[2] // self.patch_size)


class UViTBlock(nn.Module):
    """Pre-norm transformer block: (B,L,D) -> (B,L,D).

    h = x + attention(norm(x))
    out = h + Linear(GELU(Linear(norm(h))))       4 D features inside
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = UViTAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, 4 * dim)
        self.out = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.attention(self.norm1(x))
        return h + self.out(F.gelu(self.hidden(self.norm2(h))))


class UViTSkipBlock(UViTBlock):
    """UViTBlock(Linear([x, kept])): (B,L,D), (B,L,D) -> (B,L,D)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.merge = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        return super().forward(self.merge(torch.cat([x, kept], dim=2)))


class UViTAttention(nn.Module):
    """Self-attention over tokens with N heads of d = D/N features: (B,L,D) -> (B,L,D).

    Linear(softmax(q k^T / sqrt(d)) v),   q, k, v = Linear(x), all q, all k, all v

    Args:
        dim: D.
        num_heads: N, a divisor of D.
        qkv_bias: whether the first Linear has a bias; U-ViT's has none.
    """

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).unbind(2)
        h = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(h.transpose(1, 2).flatten(2))


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _check_blocks(dim: int, depth: int, num_heads: int) -> None:
    check_integer("num_heads", num_heads, 1, "use 8 for U-ViT-S")
    check_integer("dim", dim, 2, "use 512 for U-ViT-S")
    check_integer("depth", depth, 2, "use 12 for U-ViT-S")
    if dim % num_heads or dim % 2:
        unit = num_heads if num_heads % 2 == 0 else 2 * num_heads
        raise ValueError(
            f"dim={dim} must be even and a multiple of num_heads={num_heads}; use {max(1, round(dim / unit)) * unit}"
        )
    if depth % 2:
        raise ValueError(
            f"depth={depth} must be even, as many blocks before the middle one as behind it; use {depth - 1} for "
            f"{depth} blocks in all"
        )
