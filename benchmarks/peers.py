"""diffusers' UNet2DModel with the shapes of our networks, and a plain training loop for any network."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from diffusers import UNet2DModel
from torch import Tensor, nn


def unet_ddpm(base: int = 128) -> UNet2DModel:
    """DDPM's network for 3 x 32 x 32 images; with base 128 the 35,746,307 parameters of `network=unet_ddpm`."""
    return UNet2DModel(
        sample_size=32,
        center_input_sample=False,
        freq_shift=1,
        flip_sin_to_cos=False,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(base, 2 * base, 2 * base, 2 * base),
        layers_per_block=2,
        norm_eps=1e-6,
        downsample_padding=0,
        attention_head_dim=None,
        dropout=0.1,
    )


def adm_64() -> UNet2DModel:
    """ADM for 3 x 64 x 64 images without classes: the shapes of `network=adm_64`."""
    return UNet2DModel(
        sample_size=64,
        out_channels=6,
        act_fn="silu",
        attention_head_dim=64,
        attn_norm_num_groups=32,
        block_out_channels=(192, 384, 576, 768),
        down_block_types=("ResnetDownsampleBlock2D", *["AttnDownBlock2D"] * 3),
        up_block_types=(*["AttnUpBlock2D"] * 3, "ResnetUpsampleBlock2D"),
        downsample_type="resnet",
        upsample_type="resnet",
        layers_per_block=3,
        resnet_time_scale_shift="scale_shift",
        dropout=0.1,
    )


def training_step(
    network: nn.Module, x0: Tensor, precision: torch.dtype = torch.float32, micro: int | None = None
) -> Callable[[], None]:
    """A function that does one training step as in the example of diffusers, without accelerate:

        t and noise, x_t, mean squared error to the noise, backward pass, clip at norm 1, Adam, EMA, loss.item()

    Args:
        network: called as network(x_t, t); its output is a tensor or has one in `.sample`.
        x0: (B,C,H,W) the batch, on the device.
        precision: of autocast; float32 turns it off.
        micro: rows of one forward and backward pass; all by default.
    """
    from diffusers import DDPMScheduler
    from diffusers.training_utils import EMAModel

    schedule, ema = DDPMScheduler(), EMAModel(network.parameters(), decay=0.9999)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    autocast = torch.autocast(x0.device.type, precision, enabled=precision != torch.float32)
    parts = x0.split(micro or len(x0))

    def step() -> None:
        for rows in parts:
            noise = torch.randn_like(rows)
            t = torch.randint(0, 1000, (len(rows),), device=x0.device)
            with autocast:
                out = network(schedule.add_noise(rows, noise, t), t)
            out = out if isinstance(out, Tensor) else out.sample
            loss = F.mse_loss(out[:, : rows.shape[1]].float(), noise)
            (loss / len(parts)).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.step(network.parameters())
        loss.item()

    return step
