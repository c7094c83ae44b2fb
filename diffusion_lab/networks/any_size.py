"""DDPM's U-Net for images of any size: the number of levels follows from it, and sizes that do not divide are padded.

h = max(1, ceil(log2(image_size / 8)))     times that the size is halved: the coarsest level has at most 8 pixels
image_size                                 is padded with zeros to the next multiple of 2^h, and cut out again

8 -> 4      28 -> 14 -> 7      40 -> 20 -> 10 -> 5      50, padded to 56 -> 28 -> 14 -> 7      256 -> .. -> 16 -> 8
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.networks.for_diffusers import ForDiffusers
from diffusion_lab.networks.unet import UNet

COARSEST = 8  # pixels per side that the last level has at most


class AnySizeUNet(UNet):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size), for any `image_size`.

    Use: when no other network has the size of your images; with the sizes of `unet_small` or `adm_64` these do as well.

    Args:
        in_channels, out_channels, num_classes: as `UNet`.
        image_size: pixels per side, at least 2.
        base_channels: channels of level 0, a multiple of 4; 64 or 128 for a GPU.
        channel_multipliers: one per level, from full size downwards; further levels have the last one.
        num_res_blocks: blocks per level of the encoder.
        attention_pixels: every block at levels of at most this many pixels per side is followed by attention; the
            middle always has it.
        dropout: probability in [0, 1) inside the residual blocks.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        base_channels: int = 32,
        channel_multipliers: Sequence[int] = (1, 2, 3, 4),
        num_res_blocks: int = 2,
        attention_pixels: int = 16,
        dropout: float = 0.1,
        num_classes: int | None = None,
    ) -> None:
        check_integer("image_size", image_size, 2, "use images of 8 to 256 pixels")
        check_integer("attention_pixels", attention_pixels, 0, "use 16, or 0 for attention in the middle only")
        if not channel_multipliers:
            raise ValueError("channel_multipliers=[] must have at least one number; use [1, 2, 3, 4]")
        halvings = halvings_of(image_size)
        unit = 2**halvings
        inside = -(-image_size // unit) * unit
        last = len(channel_multipliers) - 1
        widths = [channel_multipliers[min(level, last)] for level in range(halvings + 1)]
        attends = [inside // 2**level for level in range(halvings + 1) if inside // 2**level <= attention_pixels]
        super().__init__(
            in_channels, out_channels, inside, base_channels, widths, num_res_blocks, attends, dropout, num_classes
        )
        before = (inside - image_size) // 2
        self.padding = (before, inside - image_size - before)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """As `UNet`. Zeros are what the convolutions see outside the image anyway."""
        if not any(self.padding):
            return super().forward(x, t, label)
        t = t if t.ndim == 1 else F.pad(t.float(), self.padding * 2, mode="replicate")
        out = super().forward(F.pad(x, self.padding * 2), t, label)
        return F.pad(out, [-n for n in self.padding * 2])  # a copy: FSDP warns of a network whose output is a view

    def for_diffusers(self) -> ForDiffusers:
        """As `UNet`.

        Raises:
            ValueError: the images are padded, which no model of the library does.
        """
        if any(self.padding):
            raise ValueError(
                "network=unet_any pads images of this size, which no model of diffusers does; use format=safetensors"
            )
        return super().for_diffusers()


def halvings_of(image_size: int) -> int:
    """h above: 1 for 2 to 16 pixels, 2 to 32, 3 to 64, 4 to 128, 5 to 256."""
    halvings = 1
    while image_size > COARSEST << halvings:
        halvings += 1
    return halvings
