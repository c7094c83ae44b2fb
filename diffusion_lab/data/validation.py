"""Batches of validation images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

from diffusion_lab.data.conditions import Cond


class ValBatch(NamedTuple):
    """Images of the test split, in the model's range.

    Attributes:
        image: (n,C,H,W) float32.
        ids: (n,) int64, their numbers among the validation images, 0..num_val_images-1.
        cond: their conditions.
    """

    image: Tensor
    ids: Tensor
    cond: Cond


class ValBatches:
    """A loader of one process's share of the validation images.

    Args:
        batches: begins an iteration.
        images: number of its images.
        batch_size: images of one batch.
    """

    def __init__(self, batches: Callable[[], Iterator[ValBatch]], images: int, batch_size: int) -> None:
        self._batches, self._length = batches, -(-images // batch_size)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[ValBatch]:
        return self._batches()
