"""Stops at the step whose loss is not finite, before a good checkpoint is replaced."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, data_of
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class NotFinite(RuntimeError):
    """The loss became NaN or infinite."""


class Guard(StepCallback):
    """Raises `NotFinite` naming the step, the timesteps and the images of the first loss that is not finite.

    The losses are added up on the device, where a sum that was once not finite stays so, and the host looks at it every
    `every` steps, so a GPU is not stalled each step; only then are the steps since the last look gone through.
    Checkpointing asks `check` before it writes.

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
        self._sum: torch.Tensor | float = 0.0  # over the steps that were not looked at yet
        self._steps: list[tuple[int, list[tuple[torch.Tensor, torch.Tensor]]]] = []
        self._on_cpu = pl_module.device.type == "cpu"

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        for record in records:
            self._sum = record.objective.sum() + self._sum
        self._steps.append((step, [(record.t, record.objective) for record in records]))
        if self._on_cpu or step % self.every == 0:
            self.check(trainer)

    def check(self, trainer: Trainer) -> None:
        """Raise if any loss so far was not finite."""
        finite, steps = math.isfinite(self._sum), self._steps
        self._sum, self._steps = 0.0, []
        if finite:
            return
        for step, rows in steps:
            t, objective = (torch.cat(parts).cpu() for parts in zip(*rows, strict=True))
            wrong = ~torch.isfinite(objective)
            if wrong.any():
                self._stop(trainer, step, t[wrong], wrong)

    @staticmethod
    def _stop(trainer: Trainer, step: int, t: torch.Tensor, wrong: torch.Tensor) -> NoReturn:
        order = getattr(data_of(trainer), "order", None)
        images = ""
        if order is not None:
            ids = order.local_indices(step - 1)
            images = f" of images {ids[wrong].tolist()[:8]}"
        raise NotFinite(
            f"the loss is not finite at optimizer step {step}, timesteps {t.tolist()[:8]}{images}; "
            "the last checkpoint is from before it. Lower optimizer.lr, or look at these images"
        )
