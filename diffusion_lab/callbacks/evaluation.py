"""Evaluations between steps, repeated if interrupted: the validation loss, and samples with their metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import WrittenPath, check_integer
from diffusion_lab.callbacks.base import (
    StepCallback,
    callbacks_of,
    check_interval,
    data_of,
    due,
    last_step,
)
from diffusion_lab.callbacks.ema import averaged_weights
from diffusion_lab.callbacks.training_log import timestep_axes
from diffusion_lab.data import ImageDataModule
from diffusion_lab.held_folder import current
from diffusion_lab.loggers import log_curve, log_directions, log_image, log_values
from diffusion_lab.metrics import Evaluation, Latents, MetricResult, save_grid
from diffusion_lab.metrics.timestep_mean import TimestepMean
from diffusion_lab.progress import progress
from diffusion_lab.runs.lines import append_evaluations
from diffusion_lab.runs.names import SAMPLES, numbered
from diffusion_lab.solvers import Solver, network_calls
from diffusion_lab.streams import Streams
from diffusion_lab.training import DiffusionModule, RunModule
from diffusion_lab.training.run_module import Record
from diffusion_lab.training.validation_loss import validation_losses

MAX_REPEATS = 10_000  # more is assumed to be a typing error
log = logging.getLogger(__name__)


class EvaluationCallback(StepCallback):
    """A callback that evaluates and logs after some steps and does not change the state of training.

    It comes after `checkpoint`, which saves the step and the list of its evaluations before they start. An evaluation
    can therefore be stopped or killed at any time: the resumed run starts with it and gives the same bits.
    """

    every = 0  # optimizer steps between two evaluations, if there are several
    seconds = 0.0  # that its finished evaluations have taken in this process
    began: float | None = None  # when the present one began
    owed = False  # whether the step from which training starts has yet to be evaluated; set by RunRecord

    def __init__(self) -> None:
        # Set by Checkpoint: a signal ends the evaluation inside, and its end is recorded.
        self.around: Callable[[EvaluationCallback, int], AbstractContextManager] = lambda callback, step: nullcontext()

    def due(self, trainer: Trainer, step: int) -> bool:
        """Whether `step` is evaluated: a function of the step and of the run's configuration alone."""
        raise TypeError(f"{type(self).__name__} must define due")

    def evaluate(self, trainer: Trainer, module: Any, step: int) -> None:
        """Evaluate and log; called on all processes."""
        raise TypeError(f"{type(self).__name__} must define evaluate")

    def rows(self, trainer: Trainer, module: Any, step: int) -> int:
        """Network calls for one image each in the evaluation after `step`, to estimate its time; 0: not known."""
        return 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if self.owed:
            self.owed = False
            self._act(trainer, cast(RunModule, pl_module), trainer.global_step)

    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        if self.due(trainer, step):
            self._act(trainer, module, step)

    def _act(self, trainer: Trainer, module: RunModule, step: int) -> None:
        self.began = time.perf_counter()
        try:
            with self.around(self, step):
                self.evaluate(trainer, module, step)
        finally:
            self.seconds, self.began = self.spent(), None

    def spent(self) -> float:
        """Seconds that evaluations have taken in this process, with the present one so far."""
        return self.seconds + (0.0 if self.began is None else time.perf_counter() - self.began)


def planned(trainer: Trainer, module: Any) -> list[tuple[int, int]]:
    """Step and rows of all evaluations of the run, in the order of the steps."""
    found, last = [], last_step(trainer)
    for one in evaluations(trainer):
        steps = {*(range(one.every, last, one.every) if one.every else ()), last}
        found += [(step, one.rows(trainer, module, step)) for step in steps if one.due(trainer, step)]
    return sorted(found)


def evaluations(trainer: Trainer) -> list[EvaluationCallback]:
    """The trainer's evaluations, in their order."""
    return [callback for callback in callbacks_of(trainer) if isinstance(callback, EvaluationCallback)]


class Validation(EvaluationCallback):
    """Logs `val/loss` and `val/loss_t` (by equal ranges of timesteps) every `every` steps, and always at the end.

    It never uses the run's sampler or weighting, so runs that differ in them can be compared. `val/loss` is the mean
    over bins, so all ranges of timesteps have equal weight. It does not use Lightning's validation loop, because a run
    that is stopped in that loop would skip the rest of it when resumed.

    Args:
        every: optimizer steps between two validations; with 0 only at the end.
        bins: number of ranges of timesteps.
        repeats: number of timesteps per image, at most 10,000.
        batch_size: images of one network call.
        seed: seed of the timesteps and the noise. It is the same for all runs, and not the run's as that of the samples
            that metrics use: the curve of one run over its steps, and those of several runs, differ by the weights
            alone. An interval of `val/loss` over seeds is therefore without the effect of the noise.
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
        log_snr = cast(DiffusionModule, pl_module).denoiser.schedule.log_snr
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
        with module.device:
            table = TimestepMean(bins)  # of ranges of timesteps
        data = data_of(trainer)
        with progress("validating", data.num_val_images, "images", show=trainer.is_global_zero) as shown:
            for batch in data.val_batches(self.batch_size, trainer.global_rank, trainer.world_size):
                image = batch.image.to(module.device)
                cond = {key: value.to(module.device) for key, value in batch.cond.items()}
                for repeat in range(self.repeats):
                    t, loss = validation_losses(
                        module.denoiser, image, batch.ids, data.num_val_images, repeat, streams, cond
                    )
                    table.update(t * bins // steps, loss)
                shown.advance(len(image) * trainer.world_size)
        return table.totals(across_ranks=True).mean()


class Generation(EvaluationCallback):
    """Generates a grid of samples, and evaluates metrics, with averaged weights every `every` steps and at the end.

    The grids of all steps and of all runs start from the same latents, also those of different seeds, so that they can
    be compared image by image. What is measured is sampled from the latents of the run's seed (`Evaluation.seed`).
    Values are logged as `metrics/<name>`, and written with their protocol to evaluations.jsonl in the run folder.

    Metrics need many more samples than a grid, so they are evaluated only if a multiple of `metrics_every` lies between
    the previous generation and this one, and always at the end.

    Args:
        directory: the run folder; grids are written to samples/step-00001000.png in it.
        solver: how to sample.
        evaluation: the metrics and their number of samples.
        every: optimizer steps between two generations; with 0 only at the end, and only if there are metrics.
        metrics_every: metrics are evaluated at the first generation at or after each multiple of so many optimizer
            steps; 0 evaluates them at every generation.
        grid: number of images in the grid, preferably a square.
    """

    def __init__(
        self,
        directory: WrittenPath,
        solver: Solver,
        evaluation: Evaluation,
        every: int = 1000,
        metrics_every: int = 0,
        grid: int = 64,
    ) -> None:
        super().__init__()
        check_integer("grid", grid, 1, "use 64 images")
        self.directory, self.solver, self.evaluation = Path(directory), solver, evaluation
        self.every, self.grid = check_interval("every", every), grid
        self.metrics_every = check_interval("metrics_every", metrics_every)
        self._warned: set[str] = set()  # names of metrics
        self._calls: int | None = None  # of the network, for one image

    def results(self, data: ImageDataModule) -> Sequence[str]:
        return [f"metrics/{name}" for name in self.evaluation.result_names(data)]

    def due(self, trainer: Trainer, step: int) -> bool:
        at_end = step == last_step(trainer) and bool(self.evaluation.measured(data_of(trainer)))
        return at_end or due(step, self.every, last_step(trainer))

    def rows(self, trainer: Trainer, module: RunModule, step: int) -> int:
        diffusion = isinstance(module, DiffusionModule)
        if self._calls is None:  # the solver runs once to count them
            self._calls = network_calls(self.solver, module.denoiser) if diffusion else 1
        if not measured(step, self.every, self.metrics_every, last_step(trainer)):
            return self.grid * self._calls
        timesteps = module.denoiser.num_timesteps if diffusion else 0
        return self.evaluation.calls(data_of(trainer), self._calls, timesteps, module.streams.seed, self.grid)

    def evaluate(self, trainer: Trainer, module: RunModule, step: int) -> None:
        with averaged_weights(trainer, module) as decay, trainer.strategy.precision_plugin.forward_context():
            images, results, columns = self.evaluation(
                module.model,
                self.solver,
                data_of(trainer),
                module.device,
                progress=trainer.is_global_zero,
                ema_decay=decay,
                keep=self.grid,
                metrics=measured(step, self.every, self.metrics_every, last_step(trainer)),
                latents=Latents.of_run(module.streams.seed),
            )
        if not trainer.is_global_zero:
            return
        path = current(self.directory) / SAMPLES / numbered(step, ".png")
        save_grid(images, path, columns)
        log_image(trainer, "samples", path)
        if results:
            self._warn(results, step)
            log_directions(trainer, {f"metrics/{result.name}": result.better for result in results})
            log_values(trainer, {f"metrics/{result.name}": result.value for result in results})
            append_evaluations(self.directory, [result.line(step) for result in results])

    def _warn(self, results: Sequence[MetricResult], step: int) -> None:
        """Warn once of each metric whose value is not finite."""
        for result in results:
            if (warning := result.warning(step)) and result.name not in self._warned:
                self._warned.add(result.name)
                log.warning("%s", warning)


def measured(step: int, every: int, metrics_every: int, last: int) -> bool:
    """Whether metrics are evaluated after `step`: a function of the step alone, so a resumed run agrees."""
    return step == last or metrics_every == 0 or step // metrics_every > (step - every) // metrics_every
