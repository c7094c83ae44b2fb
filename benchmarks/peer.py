"""diffusers' network with the architecture and the 35,746,307 parameters of network=unet_ddpm."""

from __future__ import annotations

from diffusers import UNet2DModel


def diffusers_unet(width: int = 128) -> UNet2DModel:
    """For 3 x 32 x 32 images, `width` channels at full size; in training mode, as its constructor leaves it."""
    return UNet2DModel(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        freq_shift=1,
        flip_sin_to_cos=False,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(width, 2 * width, 2 * width, 2 * width),
        layers_per_block=2,
        norm_eps=1e-6,
        downsample_padding=0,
        attention_head_dim=None,
        dropout=0.1,
    )
