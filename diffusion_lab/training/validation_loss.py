"""Validation loss for comparing runs: fixed timesteps, fixed noise, no sampler, no weight.

Image i of N validation images is measured `repeats` times. Repeat r has

    t = floor(T (pi_r(i) + 1/2) / N),   pi_r a fixed permutation of {0..N-1},   eps a function of (seed, i, r)

so the timesteps are equally spread, and all runs with the same seed and data set use the same (image, t, eps). The
loss is the native one, unweighted; sums are float64.

`LossMean` and `ValidationLoss` serve a Lightning Trainer that is not ours. Both are logged through Lightning, once in
an epoch or a validation, for EarlyStopping, ModelCheckpoint and the like; a step only keeps a reference to its losses.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from diffusion_lab.data import ImageDataModule, ValBatch
from diffusion_lab.data.own_batches import OwnBatches
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.distributed import sum_
from diffusion_lab.metrics.timestep_mean import TimestepMean
from diffusion_lab.streams import Streams

TOGETHER = 32  # steps whose losses are added up in one operation
BINS = 20  # ranges of timesteps, as in `callbacks.Validation`


def fixed_timesteps(ids: Tensor, total: int, num_timesteps: int, repeat: int, streams: Streams) -> Tensor:
    """t (n,) int64 of the images `ids` (n,) out of `total`, at repeat number `repeat`."""
    order = torch.randperm(total, generator=streams.generator("cpu", "eval", 0, repeat))
    return ((order[ids] + 0.5) * num_timesteps / total).long().clamp_(max=num_timesteps - 1)


def fixed_noise(ids: Tensor, shape: tuple[int, ...], repeat: int, streams: Streams) -> Tensor:
    """eps (n, *shape) of the images `ids`, each a function of its own id and independent of the batch size."""
    return torch.stack([streams.normal(shape, "eval", 1, repeat, int(i)) for i in ids])


@torch.no_grad()
def validation_losses(
    denoiser: Denoiser,
    image: Tensor,
    ids: Tensor,
    total: int,
    repeat: int,
    streams: Streams,
    cond: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """t (n,) and native loss (n,) of one batch of validation images (n,C,H,W) in [-1, 1].

    Args:
        denoiser: in eval mode, on the device of `image`.
        ids: (n,) their numbers among `total` validation images.
        repeat: number of the repeat.
    """
    t = fixed_timesteps(ids.cpu(), total, denoiser.num_timesteps, repeat, streams).to(image.device)
    eps = fixed_noise(ids, tuple(image.shape[1:]), repeat, streams).to(image.device)
    return t, denoiser.loss(image, eps, t, **(cond or {})).native


class LossMean:
    """The mean of the rows that were added since the last `take`, on the device of their losses."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []
        self._sum: Tensor | float = 0.0
        self._rows = 0

    def __bool__(self) -> bool:
        return self._rows > 0

    def add(self, loss: Tensor) -> None:
        """Keep the losses (b,), which may not be changed in place afterwards."""
        self._kept.append(loss)
        self._rows += len(loss)
        if len(self._kept) == TOGETHER:
            self._fold()

    def take(self) -> Tensor:
        """() over all processes, on which it must be called."""
        self._fold()
        assert isinstance(self._sum, Tensor)
        total, rows = sum_(torch.stack([self._sum, torch.full_like(self._sum, self._rows)]))
        self._sum, self._rows = 0.0, 0
        return total / rows

    def _fold(self) -> None:
        if self._kept:
            self._sum = self._sum + torch.cat(self._kept).double().sum()
            self._kept = []


class ValidationLoss:
    """The validation loss of `callbacks.Validation`, with one timestep per image, of Lightning's validation batches.

    Image i has the same timestep and noise in every validation, so losses of different steps can be compared. Batches
    are `ValBatch`, or those of a loader of one's own (`OwnBatches`), which must give the images in the same order.

    Args:
        denoiser: the model.
        trainer: the trainer that validates.
    """

    def __init__(self, denoiser: Denoiser, trainer: Trainer) -> None:
        self._denoiser, self._trainer, self._streams = denoiser, trainer, Streams(0)
        self._bins = min(BINS, denoiser.num_timesteps)
        with trainer.strategy.root_device:
            self._table = TimestepMean(self._bins)  # of ranges of timesteps
        self._own = OwnBatches(denoiser.network)
        self._seen, self._images = 0, 0  # images so far on this process, and of all processes at the end

    def add(self, batch: Any) -> None:
        """Measure a batch on the device."""
        if isinstance(batch, ValBatch):
            image, ids, cond = batch
            data: Any = getattr(self._trainer, "datamodule", None)
            self._images = data.num_val_images
        else:
            cond = self._own.read(batch)
            image = cond.pop("image")
            self._images = self._images or self._total(len(image))
            ids = self._trainer.global_rank + self._trainer.world_size * (self._seen + torch.arange(len(image)))
            ids %= self._images  # several processes repeat the first images, so that each has as many
        self._seen += len(image)
        with self._own.fit(image):
            t, loss = validation_losses(self._denoiser, image, ids, self._images, 0, self._streams, cond)
        self._table.update(t * self._bins // self._denoiser.num_timesteps, loss)

    def mean(self) -> Tensor:
        """() the mean over the ranges of timesteps, on all processes."""
        return torch.nanmean(self._table.totals(across_ranks=True).mean())

    def _total(self, rows: int) -> int:
        """Number of images of one's own loader: of its data set, or of its batches."""
        loader = self._trainer.val_dataloaders
        dataset = getattr(loader, "dataset", None)
        if isinstance(dataset, Sized) and getattr(loader, "batch_size", None):
            return len(dataset)
        batches = sum(self._trainer.num_val_batches)
        if batches == float("inf"):
            raise ValueError(
                "val_dataloaders must give a known number of images, which fixes each image's timestep; use a data set "
                "with a length, or limit_val_batches=10"
            )
        return int(batches) * rows * self._trainer.world_size


def own_batches(trainer: Trainer, denoiser: Denoiser) -> OwnBatches | None:
    """The reader of the trainer's training batches; None for those of an `ImageDataModule`, which are ready."""
    ours = isinstance(getattr(trainer, "datamodule", None), ImageDataModule)
    return None if ours else OwnBatches(denoiser.network)
