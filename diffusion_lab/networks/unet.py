"""The U-Net of DDPM (Ho et al. 2020, appendix B).

    conv_in   the plan of `plan.py` with residual blocks, attention behind some of them   norm SiLU conv_out

Level l works on (image_size / 2^l)^2 pixels with base_channels x channel_multipliers[l] channels.

`for_diffusers` gives it as a UNet2DModel of the diffusers library. Differs from the library in one thing: it has one
number of groups for all GroupNorms, ours follows the channels below 128 (`layers.num_groups`). `num_groups` is then set
again after loading, which changes no weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from diffusion_lab.networks.checks import check_attention, check_classes, check_counts, check_dropout, level_sizes
from diffusion_lab.networks.for_diffusers import ForDiffusers, renamed, thirds
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
from diffusion_lab.networks.plan import Block, UNetPlan

ADJUSTMENT = """for part in model.modules():  # narrow layers have fewer groups, of at least four channels
    if isinstance(part, torch.nn.GroupNorm):
        n = part.num_channels
        part.num_groups = max(g for g in range(1, 33) if n % g == 0 and n >= 4 * g)"""


class UNet(UNetPlan):
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

    takes_time_map = True

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
        self.num_classes = num_classes
        self.label = None if num_classes is None else nn.Embedding(num_classes, features)
        self.conv_in = conv(in_channels, base_channels, 3)

        widths = [base_channels * multiplier for multiplier in channel_multipliers]
        attends = [size in attention_resolutions for size in sizes]
        channels = self.lay(DDPMLayers(features, dropout), base_channels, widths, attends, num_res_blocks)
        self.norm_out = group_norm(channels)
        self.conv_out = conv(channels, out_channels, 3, gain=NEAR_ZERO)

    def for_diffusers(self) -> ForDiffusers:
        """The same network as the library's model.

        Raises:
            ValueError: level 0 has another width than the time embedding's waves, which the library takes to be equal.
        """
        encoder: Any = self.encoder
        decoder: Any = self.decoder
        base, widths = self.conv_in.out_channels, [level.blocks[0].res.conv1.out_channels for level in encoder]
        if widths[0] != base:
            raise ValueError(
                f"network.channel_multipliers[0]={widths[0] / base:g} must be 1 for a UNet2DModel of diffusers, whose "
                "first level is as wide as its time embedding's waves; use format=safetensors"
            )
        attends = [isinstance(level.blocks[0].attention, Attention) for level in encoder]
        tensors = renamed(
            [
                ("conv_in", self.conv_in),
                ("conv_norm_out", self.norm_out),
                ("conv_out", self.conv_out),
                ("time_embedding.linear_1", self.time.hidden),
                ("time_embedding.linear_2", self.time.out),
                *([] if self.label is None else [("class_embedding", self.label)]),
            ]
        )
        for k, level in enumerate(encoder):
            tensors |= _level(f"down_blocks.{k}", level.blocks, "downsamplers.0", level.resample)
        tensors |= _level("mid_block", self.middle, "", None)
        for k, level in enumerate(decoder):
            tensors |= _level(f"up_blocks.{k}", level.blocks, "upsamplers.0", level.resample)
        groups = {part.num_groups for part in self.modules() if isinstance(part, nn.GroupNorm)}
        arguments: dict[str, Any] = {
            "in_channels": self.conv_in.in_channels,
            "out_channels": self.conv_out.out_channels,
            "block_out_channels": widths,
            "layers_per_block": len(encoder[0].blocks),
            "down_block_types": ["AttnDownBlock2D" if one else "DownBlock2D" for one in attends],
            "up_block_types": ["AttnUpBlock2D" if one else "UpBlock2D" for one in reversed(attends)],
            "attention_head_dim": None,  # one head
            "downsample_padding": 0,  # the library then pads at the right and the bottom
            "dropout": encoder[0].blocks[0].res.dropout.p,
            "flip_sin_to_cos": False,  # sines first
            "freq_shift": 1,
            "norm_eps": 1e-6,
            "norm_num_groups": math.gcd(*groups),
            "num_class_embeds": None if self.label is None else self.label.num_embeddings,
        }
        return ForDiffusers("UNet2DModel", arguments, tensors, ADJUSTMENT if len(groups) > 1 else "")


class DDPMLayers:
    """The layers of DDPM: E features of the time embedding, probability of dropout."""

    def __init__(self, features: int, dropout: float) -> None:
        self.features, self.dropout = features, dropout

    def block(self, in_channels: int, out_channels: int, attend: bool) -> Block:
        """A residual block, with attention behind it if `attend`."""
        res = ResBlock(in_channels, out_channels, self.features, self.dropout)
        return Block(res, Attention(out_channels) if attend else None)

    def down(self, channels: int) -> Downsample:
        """A convolution with stride 2."""
        return Downsample(channels)

    def up(self, channels: int) -> Upsample:
        """Each pixel twice, and a convolution."""
        return Upsample(conv(channels, channels, 3))


def _level(place: str, blocks: Any, resampler: str, resample: Any) -> dict[str, Tensor]:
    """The tensors of the blocks of one size and of the change of size behind them."""
    tensors = renamed(pair for i, block in enumerate(blocks) for pair in _residual(f"{place}.resnets.{i}", block.res))
    attentions = [block.attention for block in blocks if isinstance(block.attention, Attention)]
    for i, attention in enumerate(attentions):
        name = f"{place}.attentions.{i}"
        tensors |= renamed([(f"{name}.group_norm", attention.norm)])
        tensors |= thirds((f"{name}.to_q", f"{name}.to_k", f"{name}.to_v"), attention.qkv)
        tensors |= {
            key: v.flatten(1) if v.ndim > 1 else v for key, v in renamed([(f"{name}.to_out.0", attention.out)]).items()
        }
    return tensors if resample is None else tensors | renamed([(f"{place}.{resampler}.conv", resample.conv)])


def _residual(place: str, block: Any) -> Iterator[tuple[str, nn.Module]]:
    ours = ("norm1", "conv1", "shift", "norm2", "conv2")
    theirs = ("norm1", "conv1", "time_emb_proj", "norm2", "conv2")
    for own, name in zip(ours, theirs, strict=True):
        yield f"{place}.{name}", getattr(block, own)
    yield f"{place}.conv_shortcut", block.skip  # an identity has no tensors
