"""Validation, sample grids and metrics: their share of a training run.

CPU time in the callbacks Validation and Generation over that of the whole run of `diffusion-lab train`. A few steps are
trained, with one validation, one grid and one measurement, and the time of the run is composed of them according to its
settings. First the defaults: digits, unet_tiny, 2,000 steps of 64 images; every 500 steps a validation on 360 images
and a grid of 64 samples by DDIM-50, at the end metrics on 1,000 samples, of which the last grid shows 64. Then
CIFAR-10's size with scale=small: 3 x 32 x 32 (Gaussian noise for images), unet_small, 20,000 steps of 128 images, every
4,000 a validation on 10,000 images (128 are timed) and a grid. Metrics have no goal, because the user chooses the
number of samples, with 50 network calls each. CPU time of one thread, one training of each kind.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from lightning.pytorch import Trainer

from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most
from diffusion_lab.callbacks import Generation, Validation
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule

QUIET = ["trainer.accelerator=cpu", "~callbacks.progress"]
CIFAR = ["dataset=gaussian", "dataset.source.channels=3", "dataset.source.image_size=32", "solver.clip=false"]
CIFAR += ["dataset.source.num_images=256", "dataset.source.num_test_images=128", "network=unet_small", "batch_size=128"]


class Seconds(NamedTuple):
    """Seconds of one step, one validation, one grid and one measurement."""

    step: float
    validation: float
    grid: float
    metrics: float


def lines() -> Iterator[Line]:
    one = _measured(["max_steps=40", "snapshot_every=20"])
    evaluation = 4 * (one.validation + one.grid)
    whole = 2000 * one.step + evaluation + one.metrics - one.grid
    yield Line("default run: validation and grids", Ratio.of([100 * evaluation / whole]), at_most(5), "%")
    yield Line("default run: metrics", Ratio.of([100 * (one.metrics - one.grid) / whole]), None, "%")
    one = _measured([*CIFAR, "max_steps=6", "snapshot_every=3", "callbacks.generation.grid=8"])
    evaluation = 5 * (one.validation * 10_000 / 128 + one.grid * 64 / 8)
    whole = 20_000 * one.step + evaluation
    yield Line("CIFAR-10's size, scale=small: the same", Ratio.of([100 * evaluation / whole]), at_most(5), "%")


class Steps(StepCallback):
    """The clock after each step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        self.at.append(time.thread_time())


def _measured(overrides: list[str]) -> Seconds:
    """Measure a training whose first evaluation is at half time and without metrics, and whose last has metrics."""
    quiet_libraries()
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder:
        cfg = compose_train(["base=ddpm", *overrides, *QUIET], Path(folder) / "run")
        run = build_run(cfg, facts(cfg), [steps])
        validation, generation = (_timed(run.trainer, kind) for kind in (Validation, Generation))
        run.trainer.fit(run.module, datamodule=run.data)
    half = cfg.max_steps // 2
    # From the first step, which loads libraries, to the one before the first evaluation.
    step = (steps.at[half - 2] - steps.at[0]) / (half - 2)
    return Seconds(step, validation[0], generation[0], generation[1])


def _timed(trainer: Trainer, kind: type[StepCallback]) -> list[float]:
    """Seconds of each evaluation of the callback; complete after the training."""
    (callback,) = (part for part in vars(trainer)["callbacks"] if isinstance(part, kind))
    inner: Callable[..., None] = callback.on_step_end
    seconds: list[float] = []

    def timed(trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        start = time.thread_time()
        inner(trainer, module, step, records)
        if step % callback.every == 0:
            seconds.append(time.thread_time() - start)

    callback.on_step_end = timed
    return seconds
