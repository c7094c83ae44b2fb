"""From a place in the run to a batch of bytes, in a loader that never ends."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.source import ImageSet

GRACE_S = 300  # seconds that a worker outlives SIGTERM, longer than a step and the checkpoint behind it take


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


class DirectLoader:
    """The microbatches one after the other, fetched where they are asked for.

    Args:
        rows: takes microbatches.
        order: names them.
        pin_memory: put the tensors where a GPU can copy from while the host goes on.
    """

    def __init__(self, rows: TrainingRows, order: StepOrder, pin_memory: bool) -> None:
        self.rows, self.order, self.pin_memory = rows, order, pin_memory

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
    """An endless loader of the microbatches that `order` names.

    Without workers it is a plain loop, because a DataLoader takes as long for a batch as a small network for a layer.
    With them it has a generator of its own: it would otherwise draw the workers' seeds from the global one.
    """
    if num_workers == 0:
        return DirectLoader(rows, order, pin_memory)
    return DataLoader(
        rows,
        batch_sampler=order,
        num_workers=num_workers,
        collate_fn=_as_it_is,
        worker_init_fn=_leave_signals_to_the_run,
        pin_memory=pin_memory,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )


def _leave_signals_to_the_run(worker: int) -> None:
    """In a worker: what asks a run to stop does not end its workers.

    A terminal's Ctrl-C, a closed terminal and a cluster reach all processes of a run. Its training process stops at the
    next step boundary, until which it needs images; the death of a worker would end it without a checkpoint. Workers
    end when it tells them to, or is gone.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Python terminates a worker that hangs, and waits for its end: so this one is put off, not ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(GRACE_S))


def _as_it_is(batch: Any) -> Any:
    return batch
