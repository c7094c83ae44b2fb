"""The loader of training batches, endless or of one epoch, and the batches of validation images."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from diffusion_lab.data.conditions import Cond
from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.source import ImageSet

GRACE_S = 300  # seconds between SIGTERM and the end of a worker, longer than a step and its checkpoint take


class TrainingRows(Dataset[dict[str, Any]]):
    """Loads whole microbatches: {"image" (b,C,H,W), "index" (b,) int64, "label" (b,) if conditional, "step", "row"}.

    A batch contains its step and row, so that later random numbers (flips) are a function of its position in the run,
    independent of the number of workers.

    Args:
        images: the training images.
        conditional: whether to include labels.
    """

    def __init__(self, images: ImageSet, conditional: bool) -> None:
        self.images = images
        self.conditional = conditional

    def __getitems__(self, rows: Rows) -> dict[str, Any]:
        ids = torch.tensor(rows, dtype=torch.int64)
        batch: dict[str, Any] = {"image": self.images.take(ids), "index": ids, "step": rows.step, "row": rows.row}
        if self.conditional and self.images.labels is not None:
            batch["label"] = self.images.labels[ids]
        return batch


class DirectLoader:
    """Loads the microbatches one after the other in the calling process.

    Args:
        rows: loads microbatches.
        order: their order.
        pin_memory: whether to pin the tensors' memory, for asynchronous copies to a GPU.
    """

    def __init__(self, rows: TrainingRows, order: StepOrder, pin_memory: bool) -> None:
        self.rows, self.order, self.pin_memory = rows, order, pin_memory

    def __len__(self) -> int:
        """Microbatches of one epoch; a TypeError, as everywhere in PyTorch, if the order is endless."""
        return len(self.order)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for rows in self.order:
            batch = self.rows.__getitems__(rows)
            if self.pin_memory:
                batch = {
                    key: value.pin_memory() if isinstance(value, Tensor) else value for key, value in batch.items()
                }
            yield batch


def training_loader(
    rows: TrainingRows, order: StepOrder, num_workers: int, pin_memory: bool
) -> Iterable[dict[str, Any]]:
    """A loader of the microbatches in the order `order`.

    Without workers it is a plain loop, because a DataLoader takes as long for a batch as a small network for a layer.
    With workers it has its own generator, because it would otherwise draw their seeds from the global one.
    """
    if num_workers == 0:
        return DirectLoader(rows, order, pin_memory)
    return DataLoader(
        rows,
        batch_sampler=order,
        num_workers=num_workers,
        collate_fn=as_it_is,
        worker_init_fn=_leave_signals_to_the_run,
        pin_memory=pin_memory,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )


def _leave_signals_to_the_run(worker: int) -> None:
    """In a worker: do not end on the signals that stop a run.

    Signals of a terminal or a cluster are sent to all processes of a run. The training process stops at the next step
    boundary and needs images until then; if a worker ended, it would end without a checkpoint. Workers end when the
    training process stops them or has ended.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Python terminates a worker that hangs and waits for its end, so this signal is delayed, not ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(GRACE_S))


def as_it_is(batch: Any) -> Any:
    """A batch that is loaded as a whole, which a DataLoader has nothing to put together of."""
    return batch


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
