"""From a place in the run to a batch of bytes, in a DataLoader that never ends."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.source import ImageSet


class TrainingRows(Dataset[dict[str, Any]]):
    """Takes whole microbatches: {"image" (b,C,H,W), "label" (b,) if wanted, "step", "row"}.

    The step and the row travel with the images, so what is drawn for them later (a flip) is a function of the place
    in the run, however many workers fetch ahead.

    Args:
        images: the training images.
        conditional: give their labels too.
    """

    def __init__(self, images: ImageSet, conditional: bool) -> None:
        self.images = images
        self.conditional = conditional

    def __getitems__(self, rows: Rows) -> dict[str, Any]:
        batch: dict[str, Any] = {"image": self.images.take(rows), "step": rows.step, "row": rows.row}
        if self.conditional and self.images.labels is not None:
            batch["label"] = self.images.labels[torch.as_tensor(rows)]
        return batch


def training_loader(rows: TrainingRows, order: StepOrder, num_workers: int, pin_memory: bool) -> DataLoader:
    """An endless loader of the microbatches that `order` names.

    The loader has a generator of its own, because it would otherwise draw the workers' seeds from the global one.
    """
    return DataLoader(
        rows,
        batch_sampler=order,
        num_workers=num_workers,
        collate_fn=_as_it_is,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
        generator=torch.Generator().manual_seed(0),
    )


def _as_it_is(batch: Any) -> Any:
    return batch
