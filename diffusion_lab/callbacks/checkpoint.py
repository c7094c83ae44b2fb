"""Checkpoints at optimizer steps: the newest two, and numbered snapshots that stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, check_interval, due, find
from diffusion_lab.callbacks.evaluation_callback import EvaluationCallback, evaluations
from diffusion_lab.callbacks.guard import Guard
from diffusion_lab.callbacks.run_record import RunRecord
from diffusion_lab.callbacks.signals import Interrupted, Signals
from diffusion_lab.runs.names import CHECKPOINT, LAST, PREVIOUS, numbered
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class Checkpoint(StepCallback):
    """Writes `last.ckpt` every `every` steps, before each evaluation and at the end, keeps the one before as
    `previous.ckpt`, and keeps a copy `step-00001000.ckpt` every `keep_every` steps.

    A copy is a hard link where the file system has them, so a snapshot costs no second write. On SIGTERM, SIGINT,
    SIGHUP, SIGUSR1 or SIGUSR2 (which clusters send before they end a job) a checkpoint is written at the next step
    boundary and `Interrupted` is raised; during an evaluation, whose step is saved already, it is raised at once. It
    must stand behind the callbacks that change state, so that the file holds the state after the whole step, and before
    the evaluations.

    Differs from Lightning's `ModelCheckpoint`: nothing is written in the middle of a step or for a number that is not
    finite, and the previous good file is kept.

    Args:
        directory: where the files go.
        every: steps between two checkpoints; 0 writes one before an evaluation and at the end only.
        keep_every: steps between two numbered snapshots; 0 keeps none. A multiple of `every`.

    Raises:
        ValueError: a negative interval, or `keep_every` that is no multiple of `every`.
    """

    def __init__(self, directory: str, every: int = 1000, keep_every: int = 0) -> None:
        self.directory = Path(directory)
        self.every = check_interval("every", every)
        self.keep_every = check_interval("keep_every", keep_every)
        if keep_every and (not every or keep_every % every):
            raise ValueError(f"keep_every={keep_every} must be a multiple of every={every}; a snapshot is a kept one")
        self.signals = Signals()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        # After Lightning's own handlers, which would end the job with exit code 0 and no checkpoint.
        self.signals.listen()
        # It would still ask all processes in every step whether one has got its signal, and wait for the answer.
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
        self._record = find(trainer, RunRecord)
        for evaluation in evaluations(trainer):
            evaluation.around = self._around

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.signals.restore()

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        stop, last = self.signals.agreed(module.device), trainer.max_steps
        measured = any(evaluation.due(trainer, step) for evaluation in evaluations(trainer))
        end = step >= last
        if stop or end or measured or due(step, self.every, last):
            self._write(trainer, step)
        if stop and (measured or not end):
            raise Interrupted(stop, step)

    @contextmanager
    def _around(self, evaluation: EvaluationCallback, step: int) -> Iterator[None]:
        with self.signals.at_once(step):
            yield
        if self._record is not None:
            self._record.settle(evaluation, step)

    def _write(self, trainer: Trainer, step: int) -> None:
        guard = find(trainer, Guard)
        if guard is not None:
            guard.check(trainer)
        last, fresh = self.directory / LAST, self.directory / f"{LAST}.next"
        trainer.save_checkpoint(fresh)  # raises, and changes no file, where a number is not finite or the disk is full
        if not trainer.is_global_zero:
            return
        if last.exists():
            _link(last, self.directory / PREVIOUS)
        os.replace(fresh, last)
        if self.keep_every and step % self.keep_every == 0:
            _link(last, self.directory / numbered(step, CHECKPOINT))


def _link(source: Path, target: Path) -> None:
    """`target` becomes the same file as `source`, in one step; a copy where the file system has no links."""
    beside = target.with_name(target.name + ".partial")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    os.replace(beside, target)
