"""The least x0-loss on the data that a model was trained on, as its network is given them.

With conditions the exact denoiser of the training images knows them too: only images with the same conditions take
part. With random flips each image takes part twice, once mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import EmpiricalFloor, NoiseSchedule
from diffusion_lab.progress import progress as shown

HELD = 2**24  # numbers that the floors of some images hold, 128 MB
ENTRIES = 2**22  # numbers in the largest other array, whatever the size of the images and of the set


def formula_floor(data: ImageDataModule, schedule: NoiseSchedule) -> Tensor | None:
    """The floor of the source's distribution at each timestep, (T,) float64 on the CPU; None if it has no formula for
    what the model is given."""
    eps_loss = data.source.loss_floor(schedule, data.conditions.conditional)
    if eps_loss is None or data.conditions.task.names:
        return None
    return eps_loss.cpu() / schedule.snr.cpu()


def together(data: ImageDataModule, num_snrs: int) -> int:
    """Number of images whose floors at so many signal-to-noise ratios fit into `HELD`, at least 1."""
    return max(1, HELD // ((num_snrs + 2) * math.prod(data.shape)))  # and the image with its noise


def image_floors(
    data: ImageDataModule, ids: Sequence[int], eps_of: Callable[[int], Tensor], snr: Tensor, progress: bool = False
) -> Tensor:
    """`diffusion.EmpiricalFloor` of training images among the training images: (n,K) float64.

    The training set is read once for `together` images: reading and decoding it may take longer than the sums.

    Args:
        ids: numbers of n training images.
        eps_of: the noise (1,C,H,W) of the image with a number.
        snr: (K,) signal-to-noise ratios.
        progress: whether to show it.
    """
    parts = []
    for some in snr.split(max(1, HELD // math.prod(data.shape))):
        size = together(data, len(some))
        groups = [ids[start : start + size] for start in range(0, len(ids), size)]
        parts.append(torch.cat([_floors(data, group, eps_of, some, progress) for group in groups]))
    return torch.cat(parts, 1)


def _floors(
    data: ImageDataModule, ids: Sequence[int], eps_of: Callable[[int], Tensor], snr: Tensor, progress: bool
) -> Tensor:
    """`image_floors` of images whose floors fit into `HELD`, by reading the training set once."""
    split = data.source.train()
    images, conds = data.conditions.of_images(split, torch.tensor(ids))
    floors = [EmpiricalFloor(x0, eps_of(i), snr) for x0, i in zip(images, ids, strict=True)]
    rows = max(1, ENTRIES // max(len(snr), math.prod(data.shape)))
    with shown("floor of the loss", len(split), "training images", show=progress) as task:
        for part in torch.arange(len(split)).split(rows):
            for chunk, given in _as_seen(data, part):
                for k, floor in enumerate(floors):
                    same = _same(given, conds, k, len(chunk))
                    if same.any():
                        floor.add(chunk[same])
            task.advance(len(part))
    return torch.stack([floor.value() for floor in floors])


def _as_seen(data: ImageDataModule, ids: Tensor) -> Iterator[tuple[Tensor, Cond]]:
    """Training images as the model sees them, with their conditions."""
    images, conds = data.conditions.of_images(data.source.train(), ids)
    yield images, conds
    if data.flip:
        mirrored = images.flip(-1)
        yield mirrored, conds | data.conditions.task.condition(mirrored)


def _same(given: Cond, conds: Cond, k: int, count: int) -> Tensor:
    """(count,) whether images have the conditions of the k-th image of `conds`."""
    same = torch.ones(count, dtype=torch.bool)
    for key, value in given.items():
        same &= (value == conds[key][k]).reshape(count, -1).all(1)
    return same
