"""Samples from the same latents, and their metrics, at every snapshot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch import Trainer

from diffusion_lab.arguments import WrittenPath, check_integer
from diffusion_lab.callbacks.base import check_interval, data_of, due, last_step
from diffusion_lab.callbacks.ema import averaged_weights
from diffusion_lab.callbacks.evaluation_callback import EvaluationCallback
from diffusion_lab.data import ImageDataModule
from diffusion_lab.held_folder import current
from diffusion_lab.loggers import log_directions, log_image, log_values
from diffusion_lab.metrics import Evaluation, MetricResult, save_grid
from diffusion_lab.runs.lines import append_evaluations
from diffusion_lab.runs.names import SAMPLES, numbered
from diffusion_lab.solvers import Solver, network_calls
from diffusion_lab.training import DiffusionModule, RunModule

log = logging.getLogger(__name__)


class Generation(EvaluationCallback):
    """Generates a grid of samples, and evaluates metrics, with averaged weights every `every` steps and at the end.

    Sample i is a function of (evaluation seed, i): the grids of all steps and of all runs start from the same latents.
    Values are logged as `metrics/<name>`, and written with their protocol to evaluations.jsonl in the run folder.

    Metrics need many more samples than a grid, so they are evaluated only if a multiple of `metrics_every` lies between
    the previous generation and this one, and always at the end.

    Args:
        directory: the run folder; grids are written to samples/step-00001000.png in it.
        solver: how to sample.
        evaluation: the metrics and their number of samples.
        every: optimizer steps between two generations; with 0 only at the end, and only if there are metrics.
        metrics_every: minimum interval in optimizer steps between two evaluations; 0 evaluates at every generation.
        grid: number of images in the grid, preferably a square; at most the evaluation's number of samples.
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
        evaluated = measured(step, self.every, self.metrics_every, last_step(trainer))
        images = self.evaluation.num_samples if evaluated and self.evaluation.measured(data_of(trainer)) else self.grid
        if self._calls is None:  # the solver runs once to count them
            self._calls = network_calls(self.solver, module.denoiser) if isinstance(module, DiffusionModule) else 1
        return images * self._calls

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
