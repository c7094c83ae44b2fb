"""Checkpoints at optimizer steps: the newest two, and numbered ones that are kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.arguments import WrittenPath
from diffusion_lab.callbacks.base import StepCallback, check_interval, due, find, last_step
from diffusion_lab.callbacks.evaluation import EvaluationCallback, evaluations
from diffusion_lab.callbacks.guard import Guard
from diffusion_lab.callbacks.run_record import RunRecord
from diffusion_lab.callbacks.signals import MOVED, Interrupted, Signals
from diffusion_lab.files import replacing
from diffusion_lab.files_inside import open_inside
from diffusion_lab.held_folder import FolderMoved, as_typed, current, moved, was_moved
from diffusion_lab.runs.names import CHECKPOINT, LAST, PREVIOUS, numbered
from diffusion_lab.runs.shell_commands import command, setting
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import Record


class Checkpoint(StepCallback):
    """Writes `last.ckpt` every `every` steps, before each evaluation and at the end, keeps the one before as
    `previous.ckpt`, and keeps a copy `step-00001000.ckpt` every `keep_every` steps.

    A copy is a hard link if the file system supports them, so it needs no second write. On SIGTERM, SIGINT,
    SIGHUP, SIGUSR1 or SIGUSR2 (which clusters send before they end a job) a checkpoint is written at the next step
    boundary and `Interrupted` is raised; during an evaluation, whose step is already saved, it is raised at once. The
    callback must come after those that change state, so that the file holds the state after the whole step, and before
    the evaluations. When the run folder was moved, a checkpoint is written in its new place and `FolderMoved` is
    raised.

    Differs from Lightning's `ModelCheckpoint`: nothing is written in the middle of a step or if a number is not finite,
    and the previous good file is kept.

    Args:
        directory: folder of the checkpoints.
        every: optimizer steps between two checkpoints; with 0 one is written only before evaluations and at the end.
        keep_every: optimizer steps between two numbered checkpoints, a multiple of `every`; 0 keeps none.

    Raises:
        ValueError: an interval is negative, or `keep_every` is not a multiple of `every`.
    """

    def __init__(self, directory: WrittenPath, every: int = 1000, keep_every: int = 0) -> None:
        self.directory = Path(directory)
        self.every = check_interval("every", every)
        self.keep_every = check_interval("keep_every", keep_every)
        if keep_every and (not every or keep_every % every):
            raise ValueError(
                f"keep_every={keep_every} must be a multiple of every={every}; a numbered checkpoint is a copy of one"
            )
        self.signals = Signals()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            # Lightning's handlers would end the job with exit code 0 and no checkpoint; what arrives from here on stops
            # the run after its next step.
            trainer._signal_connector.register_signal_handlers = lambda: None
            self.signals.listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        # Otherwise Lightning would still synchronise all processes in every step to check for its signal.
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
        self._record, self._written = find(trainer, RunRecord), trainer.global_step
        self._run = self.directory.parent if self._record is None else self._record.directory
        for evaluation in evaluations(trainer):
            evaluation.around = self._around
        if last_step(trainer) == 0 and not (self.directory / LAST).exists():
            self._write_start(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the end of an endless training that something else has ended, such as `EarlyStopping` or max_time. In
        epochs Lightning has counted the one that was cut as whole, so that a run would not go on from there."""
        endless = getattr(trainer, "max_epochs", -1) in (None, -1)
        if endless and trainer.global_step > self._written and not cast(RunModule, pl_module)._records:
            self._write(trainer, trainer.global_step)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.signals.restore()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.signals.restore()

    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        stop = self.signals.agreed(module.device, moved=was_moved(self._run))
        last = last_step(trainer)
        measured = any(evaluation.due(trainer, step) for evaluation in evaluations(trainer))
        end = 0 <= last <= step
        if stop or end or measured or due(step, self.every, last):
            self._write(trainer, step)
        if stop == MOVED:
            raise FolderMoved(self._moved(step))
        if stop and (measured or not end):
            raise Interrupted(stop, step)

    def _moved(self, step: int) -> str:
        place = current(self._run)
        again = command("train", setting("resume", as_typed(place)))
        return moved(self._run, place, f"the checkpoint of step {step} is there, and `{again}` goes on from it")

    def _write_start(self, trainer: Trainer) -> None:
        """The checkpoint and the evaluations of a run without steps, whose weights are those it started from."""
        self._write(trainer, 0)
        for evaluation in evaluations(trainer):
            evaluation.owed = evaluation.due(trainer, 0)

    @contextmanager
    def _around(self, evaluation: EvaluationCallback, step: int) -> Iterator[None]:
        with self.signals.at_once(step):
            yield
        if self._record is not None:
            self._record.settle(evaluation, step)

    def _write(self, trainer: Trainer, step: int) -> None:
        self._written, directory = step, current(self.directory)
        guard = find(trainer, Guard)
        if guard is not None:
            guard.check(trainer)
        last, fresh = directory / LAST, directory / f"{LAST}.next"
        trainer.save_checkpoint(fresh)  # raises, and changes no file, if a number is not finite or the disk is full
        if not trainer.is_global_zero:
            return
        if last.exists():
            _link(last, directory / PREVIOUS)
        os.replace(fresh, last)
        if self.keep_every and step % self.keep_every == 0:
            _link(last, directory / numbered(step, CHECKPOINT))


def _link(source: Path, target: Path) -> None:
    """Atomically make `target` a hard link to `source`, or a copy if the file system has no links."""
    beside = target.with_name(target.name + ".partial")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        with open_inside(source, largest=None) as file, replacing(target, beside.name) as copy:
            shutil.copyfileobj(file, copy)
    else:
        os.replace(beside, target)
