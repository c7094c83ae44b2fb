"""Stops at the step whose loss is not finite, before a good checkpoint is replaced."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, data_of
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class NotFinite(RuntimeError):
    """The loss became NaN or infinite."""


class Guard(StepCallback):
    """Raises `NotFinite` naming the step, the timesteps and the images of the first loss that is not finite.

    The check runs on the device: the first bad step and its timesteps are kept there, and the host looks every
    `every` steps, so a GPU is not stalled each step. Checkpointing asks `check` before it writes.

    Args:
        every: steps between two looks of the host; on a CPU 1 costs nothing.

    Raises:
        ValueError: every < 1.
    """

    def __init__(self, every: int = 20) -> None:
        if every < 1:
            raise ValueError(f"every={every} must be at least 1 optimizer step; use 1 to stop at once")
        self.every = every

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._bad_step = torch.full((), -1, device=pl_module.device)
        self._bad_rows: list[torch.Tensor] | None = None
        self._on_cpu = pl_module.device.type == "cpu"

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        first = self._bad_step < 0
        rows = [torch.cat([r.t for r in records]), torch.cat([r.objective for r in records])]
        bad = first & ~torch.isfinite(rows[1].sum())
        self._bad_step = torch.where(bad, step, self._bad_step)
        kept = self._bad_rows or rows
        self._bad_rows = [torch.where(bad, now, old) for now, old in zip(rows, kept, strict=True)]
        if self._on_cpu or step % self.every == 0:
            self.check(trainer)

    def check(self, trainer: Trainer) -> None:
        """Raise if any loss so far was not finite."""
        step = int(self._bad_step)
        if step < 0:
            return
        assert self._bad_rows is not None
        t, objective = self._bad_rows
        wrong = (~torch.isfinite(objective)).cpu()
        order = getattr(data_of(trainer), "order", None)
        images = ""
        if order is not None:
            ids = order.local_indices(step - 1)
            images = f" of images {ids[wrong].tolist()[:8]}"
        raise NotFinite(
            f"the loss is not finite at optimizer step {step}, timesteps {t.cpu()[wrong].tolist()[:8]}{images}; "
            "the last checkpoint is from before it. Lower optimizer.lr, or look at these images"
        )
