"""The least x0-loss on the data that a model was trained on, as its network is given them.

With conditions the exact denoiser of the training images knows them too: only images with the same conditions take
part. With random flips each image takes part twice, once mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import NoiseSchedule, empirical_floor

ENTRIES = 2**22  # numbers in the largest array, 32 MB, whatever the size of the images and of the set


def formula_floor(data: ImageDataModule, schedule: NoiseSchedule) -> Tensor | None:
    """The floor of the source's distribution at each timestep, (T,) float64 on the CPU; None if it has no formula for
    what the model is given."""
    eps_loss = data.source.loss_floor(schedule, data.conditions.conditional)
    if eps_loss is None or data.conditions.task.names:
        return None
    return eps_loss.cpu() / schedule.snr.cpu()


def image_floor(data: ImageDataModule, i: int, eps: Tensor, snr: Tensor) -> Tensor:
    """`diffusion.empirical_floor` of training image i among the training images: (1,C,H,W), (K,) -> (K,) float64."""
    x0, cond = data.conditions.of_images(data.source.train(), torch.tensor([i]))
    parts = [
        empirical_floor(x0, eps, some, _possible(data, cond, max(1, ENTRIES // max(len(some), x0.numel()))))
        for some in snr.split(max(1, ENTRIES // x0.numel()))
    ]
    return torch.cat(parts)


def _possible(data: ImageDataModule, cond: Cond, rows: int) -> Iterator[Tensor]:
    """The training images with these conditions (1,...), as the model sees them, in chunks of at most `rows`."""
    split = data.source.train()
    for ids in torch.arange(len(split)).split(rows):
        images, conds = data.conditions.of_images(split, ids)
        chunks = [(images, conds)]
        if data.flip:
            mirrored = images.flip(-1)
            chunks.append((mirrored, conds | data.conditions.task.condition(mirrored)))
        for some, given in chunks:
            same = torch.ones(len(some), dtype=torch.bool)
            for key, value in given.items():
                same &= (value == cond[key]).flatten(1).all(1) if value.ndim > 1 else value == cond[key]
            if same.any():
                yield some[same]
