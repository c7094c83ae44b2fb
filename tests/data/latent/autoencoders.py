"""Autoencoders and RGB photographs small enough for tests, made without the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image


def save_autoencoder(folder: Path, kind: str = "kl", seed: int = 0) -> Path:
    """An untrained AutoencoderKL ("kl", 4 latent channels) or VQModel ("vq", 3) that halves the side, in `folder`."""
    from diffusers import AutoencoderKL, VQModel

    common = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8, 16),
        "norm_num_groups": 4,
        "sample_size": 16,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "kl":
            model = AutoencoderKL(**common, latent_channels=4)
        else:
            model = VQModel(**common, latent_channels=3, num_vq_embeddings=32)
    model.save_pretrained(folder)
    return folder


def save_images(folder: Path, count: int = 24, size: int = 16, classes: int = 2) -> Path:
    """`count` smooth RGB images, all different, as PNGs in `classes` subfolders."""
    draw = np.random.RandomState(0)
    for i in range(count):
        coarse = Image.fromarray(draw.randint(0, 256, (4, 4, 3)).astype(np.uint8))
        path = folder / f"class{i % classes}" / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((size, size), Image.Resampling.BICUBIC).save(path)
    return folder
