"""Logs the losses of a GAN and how well its discriminator tells real from generated images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.callbacks.base import StepCallback, check_interval, due, last_step
from diffusion_lab.callbacks.timestep_log import optimizer_values
from diffusion_lab.loggers import log_values
from diffusion_lab.training import AdversarialModule, AdversarialRecord


class AdversarialLog(StepCallback):
    """Logs, every `every` steps, means over the images since the last log:

        train/loss_generator       L_G
        train/loss_discriminator   L_D
        train/judged_real          share of the real images with D(x) > 0
        train/judged_fake          share of the generated images with D(G(z)) < 0
        optim/lr, optim/beta1      of the generator

    Both shares are 1 for a discriminator that makes no error, and their mean is 1/2 for one that guesses.

    Args:
        every: optimizer steps between two logs; 0 turns it off.
    """

    drives = AdversarialModule

    def __init__(self, every: int = 100) -> None:
        self.every = check_interval("every", every)
        self._saved: Tensor | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        empty = torch.zeros(4, 2, dtype=torch.float64)  # sum and count of the first four names above
        self._sums = (empty if self._saved is None else self._saved).to(pl_module.device)
        self._saved = None

    def on_step_end(
        self, trainer: Trainer, module: AdversarialModule, step: int, records: Sequence[AdversarialRecord]
    ) -> None:
        for record in records:
            values = record.loss, record.discriminator, record.real > 0, record.fake < 0
            both = [torch.stack([v.double(), torch.ones_like(v, dtype=torch.float64)]).sum(1) for v in values]
            self._sums += torch.stack(both)
        if due(step, self.every, last_step(trainer)):
            means = (self._sums[:, 0] / self._sums[:, 1]).tolist()
            names = "loss_generator", "loss_discriminator", "judged_real", "judged_fake"
            logged = {f"train/{name}": value for name, value in zip(names, means, strict=True)}
            log_values(trainer, logged | optimizer_values(trainer))
            self._sums.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Also the sums, so that a resumed run logs the same means."""
        return {"sums": self._sums.cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict["sums"]
