"""The U-Nets of OpenAI: improved diffusion, ADM, its super-resolution, and latent diffusion's.

    conv_in   the plan of `plan.py` with residual blocks, attention behind some of them   norm SiLU conv_out

The plan is the DDPM U-Net's (`unet.py`): level l works on (image_size / 2^l)^2 pixels with base_channels x
channel_multipliers[l] channels. What differs are the layers (`adm_layers.py`): several attention heads, the time
embedding as scale and shift, residual blocks that change the size, and how weights start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.arguments import check_choice, check_flag, check_integer, check_number
from diffusion_lab.networks.adm_layers import (
    EPS,
    LAYOUTS,
    ADMAttention,
    ADMDownsample,
    ADMResBlock,
    cos_sin_embedding,
    double,
    halve,
    zeroed,
)
from diffusion_lab.networks.checks import check_attention, check_classes, check_counts, check_dropout, level_sizes
from diffusion_lab.networks.layers import TimeEmbedding, Upsample, group_norm
from diffusion_lab.networks.plan import Block, UNetPlan


class ADMUNet(UNetPlan):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size).

    The defaults are improved diffusion's network for CIFAR-10: 52,546,438 parameters with learned variance.

    References: Nichol and Dhariwal, "Improved denoising diffusion probabilistic models", 2021 (improved-diffusion);
    Dhariwal and Nichol, "Diffusion models beat GANs on image synthesis", 2021, section 3 (ADM); Rombach et al.,
    "High-resolution image synthesis with latent diffusion models", 2022 (LDM). Differs from them in the number of
    normalisation groups of layers narrower than 128 channels, see `layers.num_groups`.

    Args:
        in_channels: channels of x_t.
        out_channels: channels of the output: image channels x (heads of the prediction + variance channels).
        image_size: pixels per side, a multiple of 2^(levels - 1).
        base_channels: channels of level 0 of multiplier 1, and of the time embedding's waves; a multiple of 4.
        channel_multipliers: one per level, from full size downwards.
        num_res_blocks: R, blocks per level of the encoder.
        attention_resolutions: sizes in pixels per side at which every block is followed by attention; the middle
            always has it.
        num_heads: attention heads at every size; None when `head_channels` says it.
        head_channels: channels of one head, whose number then grows with the channels; None when `num_heads` says it.
        attention_layout: order of queries, keys and values in the channels: "legacy", head by head, or "new", all q,
            all k, all v; see `ADMAttention`.
        scale_shift_norm: whether the time embedding scales and shifts normalised features; else it is added to
            features.
        resblock_updown: whether residual blocks change the size; else convolutions do.
        dropout: probability in [0, 1) inside the residual blocks.
        time_scale: t is multiplied by it before its waves, > 0; 1000/T, 0.25 for T=4000, is improved-diffusion's
            `rescale_timesteps`.
        num_classes: number of class labels; None: the network takes no label.
        checkpointing: whether training recomputes the activations of each block instead of storing them: less memory,
            about a third more time per step.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

    images = 1  # images of in_channels channels each that the first convolution sees

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        base_channels: int = 128,
        channel_multipliers: Sequence[int] = (1, 2, 2, 2),
        num_res_blocks: int = 3,
        attention_resolutions: Sequence[int] = (16, 8),
        num_heads: int | None = 4,
        head_channels: int | None = None,
        attention_layout: str = "legacy",
        scale_shift_norm: bool = True,
        resblock_updown: bool = False,
        dropout: float = 0.3,
        time_scale: float = 1.0,
        num_classes: int | None = None,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        check_counts(in_channels, out_channels, base_channels, channel_multipliers, num_res_blocks)
        sizes = level_sizes(image_size, channel_multipliers)
        check_attention(attention_resolutions, sizes)
        check_flag("checkpointing", checkpointing, "use true where the memory does not suffice")
        check_classes(num_classes)
        check_number("time_scale", time_scale, "()", 0, float("inf"), "use 1.0, or 0.25 for T=4000")
        features = 4 * base_channels
        layers = ADMLayers(
            features, num_heads, head_channels, attention_layout, scale_shift_norm, resblock_updown, dropout
        )
        self.checkpointing, self.time_scale = checkpointing, time_scale
        self.time = TimeEmbedding(base_channels, features, cos_sin_embedding, nn.Linear)
        self.num_classes = num_classes
        self.label = None if num_classes is None else nn.Embedding(num_classes, features)
        self.conv_in = nn.Conv2d(self.images * in_channels, base_channels, 3, padding=1)

        widths = [base_channels * multiplier for multiplier in channel_multipliers]
        attends = [size in attention_resolutions for size in sizes]
        channels = self.lay(layers, base_channels, widths, attends, num_res_blocks)
        self.norm_out = group_norm(channels, EPS)
        self.conv_out = zeroed(nn.Conv2d(channels, out_channels, 3, padding=1))

    def _embed(self, t: Tensor, label: Tensor | None) -> Tensor:
        return super()._embed(t * self.time_scale, label)


class ADMSuperResolution(ADMUNet):
    """(x_t, t, label, low_res) -> (B, out_channels, image_size, image_size).

        ADMUNet([x_t, bilinear(low_res)], t, label)

    The small image is resized to the size of x_t and concatenated with it: the first convolution has 2 in_channels.
    For ImageNet 64 -> 256 it has 311,795,910 parameters.

    Reference: Dhariwal and Nichol, "Diffusion models beat GANs on image synthesis", 2021, section 6 and table 8.

    Args:
        in_channels: channels of x_t, and of the small image.
        out_channels ... checkpointing: as `ADMUNet`.
    """

    images = 2

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None, *, low_res: Tensor) -> Tensor:
        """x (B,in_channels,H,W), t (B,), label (B,) or None, low_res (B,in_channels,h,w) -> (B,out_channels,H,W).

        Raises:
            ValueError: not as many small images, or other channels than those of x.
        """
        if low_res.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"low_res={tuple(low_res.shape)} must be one small image of {x.shape[1]} channels for each of the "
                f"{len(x)} images; give the mean of every block of pixels, as task=super_resolution does"
            )
        beside = F.interpolate(low_res.to(x.dtype), size=x.shape[2:], mode="bilinear")
        return super().forward(torch.cat([x, beside], dim=1), t, label)


class ADMLayers:
    """Blocks of one network, which differ in their channels alone; arguments as `ADMUNet`, features is E."""

    def __init__(
        self,
        features: int,
        num_heads: int | None,
        head_channels: int | None,
        attention_layout: str,
        scale_shift_norm: bool,
        resblock_updown: bool,
        dropout: float,
    ) -> None:
        _check_heads(num_heads, head_channels)
        check_choice("attention_layout", attention_layout, LAYOUTS, "use new for ADM on ImageNet 64 x 64, else legacy")
        check_flag("scale_shift_norm", scale_shift_norm, "use true but for latent diffusion")
        check_flag("resblock_updown", resblock_updown, "use true for ADM, false for improved and latent diffusion")
        check_dropout(dropout)
        self.features, self.dropout, self.scale_shift_norm = features, dropout, scale_shift_norm
        self.num_heads, self.head_channels, self.layout = num_heads, head_channels, attention_layout
        self.resblock_updown = resblock_updown

    def block(self, in_channels: int, out_channels: int, attend: bool) -> Block:
        """A residual block, with attention behind it if `attend`."""
        res = ADMResBlock(in_channels, out_channels, self.features, self.dropout, self.scale_shift_norm)
        return Block(res, ADMAttention(out_channels, self._heads(out_channels), self.layout) if attend else None)

    def down(self, channels: int) -> nn.Module:
        """The layer that halves the size."""
        return self._change(channels, halve) if self.resblock_updown else ADMDownsample(channels)

    def up(self, channels: int) -> nn.Module:
        """The layer that doubles the size."""
        if self.resblock_updown:
            return self._change(channels, double)
        return Upsample(nn.Conv2d(channels, channels, 3, padding=1))

    def _change(self, channels: int, resample: Callable[[Tensor], Tensor]) -> ADMResBlock:
        return ADMResBlock(channels, channels, self.features, self.dropout, self.scale_shift_norm, resample)

    def _heads(self, channels: int) -> int:
        name, value = ("head_channels", self.head_channels) if self.num_heads is None else ("num_heads", self.num_heads)
        if value is None or channels % value:
            raise ValueError(
                f"{name}={value} must divide the {channels} channels of a layer with attention; use a divisor of "
                f"{channels} or another base_channels"
            )
        return channels // value if self.num_heads is None else value


def _check_heads(num_heads: int | None, head_channels: int | None) -> None:
    if num_heads is not None and head_channels is not None:
        raise ValueError(
            f"num_heads={num_heads} must be null where head_channels={head_channels} is given; set one of the two"
        )
    if head_channels is None:
        check_integer("num_heads", num_heads, 1, "use 4, or set head_channels")
    else:
        check_integer("head_channels", head_channels, 1, "use 64, or set num_heads")
