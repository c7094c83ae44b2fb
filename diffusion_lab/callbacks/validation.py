"""The validation loss, on fixed timesteps and noise, with averaged weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.callbacks.axes import timestep_axes
from diffusion_lab.callbacks.base import check_interval, data_of, diffusion, due, last_step
from diffusion_lab.callbacks.ema import averaged_weights
from diffusion_lab.callbacks.evaluation_callback import EvaluationCallback
from diffusion_lab.data import ImageDataModule
from diffusion_lab.loggers import log_curve, log_directions, log_values
from diffusion_lab.progress import progress
from diffusion_lab.streams import Streams
from diffusion_lab.training import DiffusionModule
from diffusion_lab.training.validation_loss import BinnedLoss, validation_losses

MAX_REPEATS = 10_000  # more is assumed to be a typing error


class Validation(EvaluationCallback):
    """Logs `val/loss` and `val/loss_t` (by equal ranges of timesteps) every `every` steps, and always at the end.

    It never uses the run's sampler or weighting, so runs that differ in them can be compared. `val/loss` is the mean
    over bins, so all ranges of timesteps have equal weight. It does not use Lightning's validation loop, because a run
    that is stopped in that loop would skip the rest of it when resumed.

    Args:
        every: optimizer steps between two validations; with 0 only at the end.
        bins: number of ranges of timesteps.
        repeats: number of timesteps per image, at most MAX_REPEATS.
        batch_size: images of one network call.
        seed: seed of the timesteps and the noise, which must be the same for all runs that are compared.
    """

    drives = DiffusionModule

    def __init__(
        self, every: int = 500, bins: int = 20, repeats: int = 1, batch_size: int = 128, seed: int = 0
    ) -> None:
        super().__init__()
        self.every = check_interval("every", every)
        self.bins = check_integer("bins", bins, 1, "use 20")
        self.repeats = check_integer("repeats", repeats, 1, "use 1, and more for few images", maximum=MAX_REPEATS)
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 128")
        self.seed = seed

    def results(self, data: ImageDataModule) -> Sequence[str]:
        return ("val/loss",)

    def due(self, trainer: Trainer, step: int) -> bool:
        return step == last_step(trainer) or due(step, self.every, last_step(trainer))

    def rows(self, trainer: Trainer, module: DiffusionModule, step: int) -> int:
        return data_of(trainer).num_val_images * self.repeats

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        log_snr = diffusion(pl_module).denoiser.schedule.log_snr
        self._axes = timestep_axes(log_snr, min(self.bins, len(log_snr)))

    def evaluate(self, trainer: Trainer, module: DiffusionModule, step: int) -> None:
        with averaged_weights(trainer, module), trainer.strategy.precision_plugin.forward_context():
            loss = self.measure(trainer, module)
        log_directions(trainer, {"val/loss": "lower"})
        values = {"val/loss": float(torch.nanmean(loss)), "val/loss_t": loss.tolist()}
        log_values(trainer, values, {"val/loss_t": self._axes})
        log_curve(trainer, "val/loss_t", self._axes["timestep"], {"loss": loss.tolist()})

    def measure(self, trainer: Trainer, module: DiffusionModule) -> Tensor:
        """(bins,) float64: the mean loss of each range of timesteps, with the module's current weights."""
        steps, streams = module.denoiser.num_timesteps, Streams(self.seed)
        bins = min(self.bins, steps)
        table = BinnedLoss(bins, steps, module.device)
        data = data_of(trainer)
        with progress("validating", data.num_val_images, "images", show=trainer.is_global_zero) as shown:
            for batch in data.val_batches(self.batch_size, trainer.global_rank, trainer.world_size):
                image = batch.image.to(module.device)
                cond = {key: value.to(module.device) for key, value in batch.cond.items()}
                for repeat in range(self.repeats):
                    t, loss = validation_losses(
                        module.denoiser, image, batch.ids, data.num_val_images, repeat, streams, cond
                    )
                    table.add(t, loss)
                shown.advance(len(image) * trainer.world_size)
        return table.mean()
