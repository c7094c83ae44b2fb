"""The training that the checks are about, and what they read from it.

It is the default of `diffusion-lab train` with a larger learning rate, so that the network matters within thirty steps:
the loss falls from 0.87 to 0.44.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.cost.trial import wait
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS
from diffusion_lab.streams import HostStreams
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import RunModule

STEPS, BATCH, WARM_UP = 30, 64, 10
SMALL = (
    f"max_steps={STEPS}",
    f"batch_size={BATCH}",
    "optimizer.lr=0.003",
    "log_every=1",
    "snapshot_every=0",  # one at the end
    "checkpoint_every=0",  # the same
    "metrics=none",
    "solver.steps=4",
    "callbacks.generation.grid=16",
    "dataset.val_images=64",
    "threads=1",  # as fast as several for a network of this size, and where other programs compute much faster
)


class Training(NamedTuple):
    """What a training gave.

    Attributes:
        losses: of each step, the mean over the batch before weighting.
        rate: images per second after the first ten steps; the loss of each step is read.
        skipped: the first step whose update the loss scaler of float16 skipped; None if there is none.
    """

    losses: list[float]
    rate: float = 0.0
    skipped: int | None = None


class Watch(StepCallback):
    """The time of the steps after the warm-up, and the first step that the loss scaler skipped."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.skipped: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._scale = self._scaler.get_scale() if self._scaler is not None else 0.0

    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: Sequence[StepRecord]) -> None:
        if self._scaler is not None:
            before, self._scale = self._scale, self._scaler.get_scale()
            if self._scale < before and self.skipped is None:  # it halves its scale when it skips an update
                self.skipped = step
        if step == WARM_UP or step == trainer.max_steps > WARM_UP:
            wait(module.device)
            now = time.perf_counter()
            if step > WARM_UP:
                self.rate = (step - WARM_UP) * BATCH / (now - self._start)
            self._start = now


def train(folder: Path, *words: str) -> Training:
    """Train with noise and timesteps of the host, and settings beside those of `SMALL`; the run stays in `folder`."""
    quiet_libraries()
    cfg = compose_train([*SMALL, *words], folder)
    torch.set_num_threads(cfg.threads)
    watch = Watch()
    run = build_run(cfg, facts(cfg), [watch])
    run.module.streams = HostStreams(cfg.seed)
    run.trainer.fit(run.module, datamodule=run.data)
    return Training(losses_of(folder), watch.rate, watch.skipped)


@contextmanager
def tensor_float(on: bool) -> Iterator[None]:
    """Inside, NVIDIA's GPUs compute convolutions in TF32, which is PyTorch's default, or in float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def losses_of(folder: Path) -> list[float]:
    """The loss of each step of a run."""
    return [row["train/loss"] for row in read_lines(folder / METRICS) if "train/loss" in row]
