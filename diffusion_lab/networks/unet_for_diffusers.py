"""DDPM's U-Net as a UNet2DModel of the diffusers library.

Differs from the library in one thing: it has one number of groups for all GroupNorms, ours follows the channels below
128 (`layers.num_groups`). `num_groups` is then set again after loading, which changes no weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from diffusion_lab.networks.for_diffusers import ForDiffusers, renamed, thirds
from diffusion_lab.networks.layers import Attention

ADJUSTMENT = """for part in model.modules():  # narrow layers have fewer groups, of at least four channels
    if isinstance(part, torch.nn.GroupNorm):
        n = part.num_channels
        part.num_groups = max(g for g in range(1, 33) if n % g == 0 and n >= 4 * g)"""


def for_diffusers(network: Any) -> ForDiffusers:
    """The library's model for a `UNet`.

    Raises:
        ValueError: level 0 has another width than the time embedding's waves, which the library takes to be equal.
    """
    encoder, decoder, middle = network.encoder, network.decoder, network.middle
    base, widths = network.conv_in.out_channels, [level.blocks[0].res.conv1.out_channels for level in encoder]
    if widths[0] != base:
        raise ValueError(
            f"network.channel_multipliers[0]={widths[0] / base:g} must be 1 for a UNet2DModel of diffusers, whose "
            "first level is as wide as its time embedding's waves; use format=safetensors"
        )
    attends = [isinstance(level.blocks[0].attention, Attention) for level in encoder]
    tensors = renamed(
        [
            ("conv_in", network.conv_in),
            ("conv_norm_out", network.norm_out),
            ("conv_out", network.conv_out),
            ("time_embedding.linear_1", network.time.hidden),
            ("time_embedding.linear_2", network.time.out),
            *([] if network.label is None else [("class_embedding", network.label)]),
        ]
    )
    for k, level in enumerate(encoder):
        tensors |= _level(f"down_blocks.{k}", level.blocks, "downsamplers.0", level.resample)
    tensors |= _level("mid_block", middle, "", None)
    for k, level in enumerate(decoder):
        tensors |= _level(f"up_blocks.{k}", level.blocks, "upsamplers.0", level.resample)
    groups = {part.num_groups for part in network.modules() if isinstance(part, nn.GroupNorm)}
    arguments: dict[str, Any] = {
        "in_channels": network.conv_in.in_channels,
        "out_channels": network.conv_out.out_channels,
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
        "num_class_embeds": None if network.label is None else network.label.num_embeddings,
    }
    return ForDiffusers("UNet2DModel", arguments, tensors, ADJUSTMENT if len(groups) > 1 else "")


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
