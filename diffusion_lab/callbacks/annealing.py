"""The callback that sets the learning rate and Adam's beta1."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.annealing import Annealing
from diffusion_lab.callbacks.base import RunCallback


class AnnealingCallback(RunCallback):
    """Before each update: lr = initial lr * factor(step), betas = (beta1(step), beta2); momentum = beta1(step)
    in a group without betas, which is Muon's.

    It replaces Lightning's schedulers. The values are pure functions of the step, so nothing is saved.

    Args:
        annealing: step -> (learning-rate factor, beta1 or None).
    """

    def __init__(self, annealing: Annealing) -> None:
        self.annealing = annealing

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
        self._set = -1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: dict[str, Tensor], batch_idx: Any
    ) -> None:
        step = trainer.global_step
        if step == self._set:
            return
        self._set = step
        factor, beta1 = self.annealing(step)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
                if beta1 is not None and "betas" in group:
                    group["betas"] = (beta1, group["betas"][1])
                elif beta1 is not None:
                    group["momentum"] = beta1
