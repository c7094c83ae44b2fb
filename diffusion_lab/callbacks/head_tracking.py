"""Lets a prediction of several heads see the errors of its heads."""

from __future__ import annotations

from lightning.pytorch import Trainer

from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class HeadTracking(StepCallback):
    """After each update: `Prediction.observe` with the rows of all processes; nothing for a prediction of one head."""

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        record = StepRecord.join(records)
        if record.errors is None or record.errors.shape[1] == 0:
            return
        log_snr = module.denoiser.schedule.log_snr[record.gather(record.t)]
        module.denoiser.prediction.observe(log_snr, record.gather(record.errors))
