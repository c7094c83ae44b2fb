"""The U-Net of DDPM (Ho et al. 2020, appendix B).

    conv_in
    encoder level l = 0 .. L-1      R x [ResBlock (Attention)]      then halve the size, except after the last level
    middle                          ResBlock Attention ResBlock
    decoder level l = L-1 .. 0      (R+1) x [ResBlock (Attention)]  then double the size, except after level 0
    norm SiLU conv_out

Level l works on (image_size / 2^l)^2 pixels with base_channels x channel_multipliers[l] channels. Every result of the
encoder, conv_in and the halvings included, is kept; each of the decoder's (R+1) L blocks takes one back, newest first,
beside its input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.checks import (
    check_attention,
    check_classes,
    check_counts,
    check_dropout,
    check_label,
    level_sizes,
)
from diffusion_lab.networks.layers import (
    NEAR_ZERO,
    Attention,
    Downsample,
    ResBlock,
    TimeEmbedding,
    Upsample,
    conv,
    group_norm,
)


class UNet(nn.Module):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size).

    With base 128, multipliers 1, 2, 2, 2, two blocks, attention at 16 and 3 x 32 x 32 images it is DDPM's network for
    CIFAR-10: 35,746,307 parameters.

    Reference: Ho, Jain, Abbeel, "Denoising diffusion probabilistic models", 2020, appendix B. Differs from it in the
    number of normalisation groups of layers narrower than 128 channels, see `layers.num_groups`.

    Args:
        in_channels: channels of x_t.
        out_channels: channels of the output: image channels x (heads of the prediction + variance channels).
        image_size: pixels per side, a multiple of 2^(levels - 1).
        base_channels: channels of level 0 of multiplier 1, and of the time embedding's waves; a multiple of 4.
        channel_multipliers: one per level, from full size downwards.
        num_res_blocks: R, blocks per level of the encoder.
        attention_resolutions: sizes in pixels per side at which every block is followed by attention; the middle
            always has it.
        dropout: probability in [0, 1) inside the residual blocks.
        num_classes: number of class labels; None: the network takes no label.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        base_channels: int = 128,
        channel_multipliers: Sequence[int] = (1, 2, 2, 2),
        num_res_blocks: int = 2,
        attention_resolutions: Sequence[int] = (16,),
        dropout: float = 0.1,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        check_counts(in_channels, out_channels, base_channels, channel_multipliers, num_res_blocks)
        sizes = level_sizes(image_size, channel_multipliers)
        check_attention(attention_resolutions, sizes)
        check_dropout(dropout)
        check_classes(num_classes)
        features = 4 * base_channels
        self.time = TimeEmbedding(base_channels, features)
        self.label = None if num_classes is None else nn.Embedding(num_classes, features)
        self.conv_in = conv(in_channels, base_channels, 3)

        channels, skips = base_channels, [base_channels]
        last = len(sizes) - 1
        self.encoder = nn.ModuleList()
        for level, (size, multiplier) in enumerate(zip(sizes, channel_multipliers, strict=True)):
            width = base_channels * multiplier
            inputs = [channels] + [width] * (num_res_blocks - 1)
            resample = Downsample(width) if level < last else None
            self.encoder.append(Level(inputs, width, features, dropout, size in attention_resolutions, resample))
            skips += [width] * (num_res_blocks + (level < last))
            channels = width

        self.middle = nn.ModuleList([Block(channels, channels, features, dropout, attend) for attend in (True, False)])

        self.decoder = nn.ModuleList()
        for level in range(last, -1, -1):
            width = base_channels * channel_multipliers[level]
            inputs = [before + skips.pop() for before in [channels] + [width] * num_res_blocks]
            resample = Upsample(width) if level > 0 else None
            attend = sizes[level] in attention_resolutions
            self.decoder.append(Level(inputs, width, features, dropout, attend, resample))
            channels = width

        self.norm_out = group_norm(channels)
        self.conv_out = conv(channels, out_channels, 3, gain=NEAR_ZERO)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) timesteps, label (B,) int64 in 0..num_classes-1 -> (B,out_channels,H,W)."""
        e = F.silu(self._embed(t, label))
        h = self.conv_in(x)
        skips = [h]
        for level in self.encoder:
            for block in level.blocks:
                h = block(h, e)
                skips.append(h)
            if level.resample is not None:
                h = level.resample(h)
                skips.append(h)
        for block in self.middle:
            h = block(h, e)
        for level in self.decoder:
            for block in level.blocks:
                h = block(torch.cat([h, skips.pop()], dim=1), e)
            if level.resample is not None:
                h = level.resample(h)
        return self.conv_out(F.silu(self.norm_out(h)))

    def _embed(self, t: Tensor, label: Tensor | None) -> Tensor:
        """(B,E): time, plus class as in Dhariwal and Nichol (2021)."""
        check_label(label, self.label)
        return self.time(t) if self.label is None else self.time(t) + self.label(label)


class Block(nn.Module):
    """A residual block, with attention behind it if `attend`."""

    def __init__(self, in_channels: int, out_channels: int, features: int, dropout: float, attend: bool) -> None:
        super().__init__()
        self.res = ResBlock(in_channels, out_channels, features, dropout)
        self.attention = Attention(out_channels) if attend else nn.Identity()

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        return self.attention(self.res(x, e))


class Level(nn.Module):
    """The blocks of one size and the change of size behind them, or None; `UNet.forward` runs them."""

    def __init__(
        self, inputs: list[int], width: int, features: int, dropout: float, attend: bool, resample: nn.Module | None
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(channels, width, features, dropout, attend) for channels in inputs])
        self.resample = resample
