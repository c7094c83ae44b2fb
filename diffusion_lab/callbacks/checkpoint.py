"""Checkpoints at optimizer steps: the newest two, and numbered snapshots that stay."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, check_interval, due, find
from diffusion_lab.callbacks.guard import Guard
from diffusion_lab.distributed import is_distributed, sum_
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class Interrupted(Exception):  # noqa: N818 - it is no error: the run goes on later
    """A signal asked the run to stop; a checkpoint was written at the step boundary after it."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}; the checkpoint is written")
        self.number = number


class _Arriving:
    """A tensor on its way to the host, which goes on with its work meanwhile."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._copy = tensor.to("cpu", non_blocking=True)  # into pinned memory, from a GPU
        self._event = torch.cuda.Event() if tensor.device.type == "cuda" else None
        if self._event is not None:
            self._event.record()

    def read(self) -> list[int]:
        """Its numbers, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.tolist()


class Checkpoint(StepCallback):
    """Writes `last.ckpt` every `every` steps and at the end, keeps the one before as `previous.ckpt`, and keeps a
    copy `step-00001000.ckpt` every `keep_every` steps.

    A copy is a hard link where the file system has them, so a snapshot costs no second write. On SIGTERM, SIGINT,
    SIGUSR1 or SIGUSR2 (which clusters send before they end a job) a checkpoint is written at the next step boundary and
    `Interrupted` is raised. It must be the last of the callbacks that change state, so that the file holds the state
    after the whole step.

    Differs from Lightning's `ModelCheckpoint`: nothing is written in the middle of a step or for a loss that is not
    finite, and the previous good file is kept.

    Args:
        directory: where the files go.
        every: steps between two checkpoints; 0 writes one at the end only.
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
        self._signal = 0
        self._arriving: _Arriving | None = None  # processes that had each of SIGNALS at the step before
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._arriving = None
        if threading.current_thread() is threading.main_thread():
            # After Lightning's own handlers, which would end the job with exit code 0 and no checkpoint.
            self._handlers = {number: signal.signal(number, self._remember) for number in SIGNALS}
            # It would still ask all processes in every step whether one has got its signal, and wait for the answer.
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        stop = self._agreed_signal(module)
        end = step >= trainer.max_steps
        if stop or end or due(step, self.every, trainer.max_steps):
            self._write(trainer, step)
        if stop and not end:
            raise Interrupted(stop, step)

    def _agreed_signal(self, module: DiffusionModule) -> int:
        """The signal, if all processes shall stop after this very step: with several, the step after it came."""
        if not is_distributed():
            return self._signal
        # At every step: a cluster gives a minute or two, and a step of a large network may take many seconds. The sum
        # is looked at one step later: by then it has come to the host, and no process waits for its device.
        before = self._arriving.read() if self._arriving else [0] * len(SIGNALS)
        signals = torch.tensor([self._signal == number for number in SIGNALS], dtype=torch.int32)
        self._arriving = _Arriving(sum_(signals.to(module.device, non_blocking=True)))  # a blocking copy waits for it
        return next((number for number, count in zip(SIGNALS, before, strict=True) if count), 0)

    def _write(self, trainer: Trainer, step: int) -> None:
        guard = find(trainer, Guard)
        if guard is not None:
            guard.check(trainer)
        last = self.directory / "last.ckpt"
        if trainer.is_global_zero and last.exists():
            _link(last, self.directory / "previous.ckpt")
        trainer.save_checkpoint(last)
        if trainer.is_global_zero and self.keep_every and step % self.keep_every == 0:
            _link(last, self.directory / f"step-{step:08d}.ckpt")


def _link(source: Path, target: Path) -> None:
    """`target` becomes the same file as `source`, in one step; a copy where the file system has no links."""
    beside = target.with_name(target.name + ".partial")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    os.replace(beside, target)
