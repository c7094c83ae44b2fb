"""Keeps the mean weight of a normalised weighting at 1."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.callbacks.base import RunCallback, diffusion
from diffusion_lab.callbacks.timestep_sampling import sampler_of
from diffusion_lab.training import DiffusionModule


class WeightNormalization(RunCallback):
    """Calls `Weighting.refresh` before updates 0, every, 2 every, ...; a no-op for a weighting with normalize=none.

    The normalisation is computed from all T timesteps, so not in every step; it is a buffer in the checkpoint, so a
    resumed run continues with the same value.

    Args:
        every: optimizer steps between two refreshes, >= 1.
    """

    drives = DiffusionModule

    def __init__(self, every: int = 100) -> None:
        check_integer("every", every, 1, "use 100 optimizer steps")
        self.every = every

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._refreshed = -1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: dict[str, Tensor], batch_idx: Any
    ) -> None:
        step = trainer.global_step
        if step % self.every or step == self._refreshed:
            return
        self._refreshed = step
        module = diffusion(pl_module)
        if module.weighting.normalize == "none":
            return
        snr = module.denoiser.schedule.snr
        sampler = sampler_of(trainer, snr)
        # With reweight a draw has the weight 1/(T p), so the effective distribution is uniform.
        effective = sampler.probabilities(step) * sampler.weight(torch.arange(len(snr), device=snr.device), step)
        module.weighting.refresh(snr, module.denoiser.native_scale(), effective, step)
