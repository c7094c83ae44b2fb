"""Gives a prediction with several heads the errors of its heads, and logs its values."""

from __future__ import annotations

from lightning.pytorch import Trainer

from diffusion_lab.callbacks.axes import angle_axes
from diffusion_lab.callbacks.base import StepCallback, check_interval, due, last_step
from diffusion_lab.loggers import log_values
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class HeadTracking(StepCallback):
    """Calls `Prediction.observe` with the rows of all processes after each update, if there are several heads.

    Logs `Prediction.log_values` as lists every `every` steps: for three heads `prediction/head_x0|v|eps`, the share of
    each in the recent selections, and `prediction/weight_x0|v|eps`, its weight in generation, by bin of noise. The host
    does not wait for the device between two logs.

    Args:
        every: optimizer steps between two logs; 0 turns logging off, but not the tracking.
    """

    drives = DiffusionModule

    def __init__(self, every: int = 100) -> None:
        self.every = check_interval("every", every)

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if records[0].errors is None or records[0].errors.shape[1] == 0:
            return
        record = StepRecord.join(records)
        assert record.errors is not None
        prediction = module.denoiser.prediction
        log_snr = module.denoiser.schedule.log_snr[record.gather(record.t)]
        prediction.observe(log_snr, record.gather(record.errors))
        if due(step, self.every, last_step(trainer)):
            values = {name: value.tolist() for name, value in prediction.log_values().items()}
            log_values(trainer, values, {name: angle_axes(len(value)) for name, value in values.items()})
