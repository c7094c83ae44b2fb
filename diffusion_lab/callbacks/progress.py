"""Progress of a run: a bar on a terminal, lines in a log file, and its time and memory."""

from __future__ import annotations

import math
import resource
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.arguments import WrittenPath, check_number
from diffusion_lab.callbacks.base import StepCallback, data_of, find, last_step
from diffusion_lab.callbacks.evaluation import EvaluationCallback, evaluations, planned
from diffusion_lab.callbacks.training_log import TimestepLog
from diffusion_lab.loggers import mirror_values, set_clock
from diffusion_lab.progress import duration, progress, waiting
from diffusion_lab.runs.lines import append_lines
from diffusion_lab.runs.names import TIMING
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import Record


class Progress(StepCallback):
    """Bars on a terminal, of training and below it of the evaluation that is going on, or a line every `line_every`
    seconds elsewhere:

        step 1500/2000  images 96.0k  time 41 s  images/s 2341  eta 14 s  loss 1.243e-01  memory 0.6 GB

    The time that is left (eta) contains the evaluations to come. The first step is left out of it and of images/s once
    there is another: it loads kernels of a GPU, and `compile=true` makes them, in seconds to minutes. Until an
    evaluation has been measured, a network call of it is taken to be a third of the training step's time for one image.

    With one process the loss is that of the step's batch. With several it is `train/loss` as last logged, the mean over
    all of them, because a reduction must run at the same step on all processes, while a clock decides when a line is
    due; before the first log no loss is shown.

    The time since the start (summed over resumes, without the time between them), images/s since the last line, memory
    and the eta are also written to `timing.jsonl`, from which a sweep shows them; they are not in metrics.jsonl, which
    is a function of the configuration.
    `training_seconds` is that time without the evaluations, against which methods can be compared. The other loggers
    get `cost/images_per_second`, `cost/memory_mb`, and the time without the evaluations as their clock.

    Args:
        directory: the run folder.
        every: seconds between two readings of the loss, the only times when the host waits for the device.
        line_every: seconds between two lines without a terminal.
    """

    def __init__(self, directory: WrittenPath, every: float = 0.5, line_every: float = 15.0) -> None:
        check_number("every", every, "()", 0, math.inf, "use 0.5 seconds")
        check_number("line_every", line_every, "()", 0, math.inf, "use 15 seconds")
        self.directory, self.every, self.line_every = Path(directory), every, line_every
        self.seconds = 0.0  # time before this start
        self.evaluating = 0.0  # of which evaluations took
        self._start: float | None = None  # None until training starts
        self._evaluations: list[EvaluationCallback] = []
        self._display = ExitStack()  # the bar, while training goes on

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.elapsed(), "evaluating": self.evaluated()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.evaluating = state_dict["seconds"], state_dict["evaluating"]

    def elapsed(self) -> float:
        """Time in seconds, summed over resumes."""
        return self.seconds + (0.0 if self._start is None else time.perf_counter() - self._start)

    def evaluated(self) -> float:
        """The part of `elapsed` that evaluations took."""
        return self.evaluating + self._spent()

    def _spent(self) -> float:
        """Seconds that evaluations have taken since this start."""
        return sum(evaluation.spent() for evaluation in self._evaluations)

    def images_per_second(self) -> float:
        """Mean since this start; 0 before training."""
        if self._start is None:
            return 0.0
        return (self._step - self._first) * self._batch / max(time.perf_counter() - self._start, 1e-9)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.is_global_zero:  # making the optimizer imports much of PyTorch's compiler
            self._display.enter_context(waiting("preparing the training"))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._display.close()
        self._start = self._read = self._lined = time.perf_counter()
        set_clock(trainer, lambda: self.elapsed() - self.evaluated())
        self._first = self._step = self._lined_step = trainer.global_step
        # Time and step from which speed is measured, and what evaluations had taken by then.
        self._steady = (self._start, self._first, 0.0)
        self._evaluations = evaluations(trainer)
        for evaluation in self._evaluations:
            evaluation.seconds = 0.0
        self._batch = data_of(trainer).batch_size
        self._ahead = planned(trainer, pl_module)
        on_terminal = trainer.is_global_zero and sys.stderr.isatty() and last_step(trainer) >= 0  # else no bar
        shown = progress("training", last_step(trainer), "steps", trainer.global_step, show=on_terminal)
        self._bar = self._display.enter_context(shown) if on_terminal else None
        if trainer.is_global_zero and not on_terminal:  # torch.compile makes its kernels then, in minutes
            self._display.enter_context(waiting("waiting for the first step"))

    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        self._step = step
        if self._bar is None:
            self._display.close()  # the wait for the first step
        now = time.perf_counter()
        if step == self._first + 1:
            self._steady = now, step, self._spent()
        last = last_step(trainer)
        if not trainer.is_global_zero or (now - self._read < self.every and not 0 <= last <= step):
            return
        self._read = now
        loss = shown_loss(trainer, records)
        if self._bar is not None:
            self._bar.at(step, loss, self._rest(trainer, step))
        # The first line comes early, so that the user soon sees how long the run will take.
        wait = self.line_every if self._lined_step > self._first else min(2.0, self.line_every)
        if now - self._lined >= wait or 0 <= last <= step:
            self._line(trainer, step, now, loss)

    def _line(self, trainer: Trainer, step: int, now: float, loss: str) -> None:
        since, before = self._lined, self._lined_step
        if before == self._first and step > self._steady[1]:
            since, before, _ = self._steady
        rate = (step - before) * self._batch / max(now - since, 1e-9)
        self._lined, self._lined_step = now, step
        limit = last_step(trainer)  # -1: something else than a number of steps ends the training
        rest = self._rest(trainer, step) if limit >= 0 else None
        of, eta = ("", "") if rest is None else (f"/{limit}", f"eta {duration(rest)}  ")
        values = {
            "step": step,
            "images": step * self._batch,
            "seconds": round(self.elapsed(), 3),
            "images_per_second": round(rate, 2),
            "memory_mb": round(memory_mb(trainer.strategy.root_device), 1),
            **({} if rest is None else {"eta_seconds": round(rest, 1)}),
            "training_seconds": round(self.elapsed() - self.evaluated(), 3),
        }
        append_lines(self.directory / TIMING, [values])
        mirror_values(trainer, {f"cost/{key}": values[key] for key in ("images_per_second", "memory_mb")})
        if self._bar is None:
            print(
                f"step {step}{of}  images {step * self._batch / 1000:.1f}k  "
                f"time {duration(self.elapsed())}  images/s {rate:.0f}  {eta}"
                f"{loss + '  ' if loss else ''}memory {values['memory_mb'] / 1000:.1f} GB",
                flush=True,
            )

    def _rest(self, trainer: Trainer, step: int) -> float:
        """Seconds until the end: the steps that are left at the speed of this start, and the evaluations."""
        spent = self._spent()
        since, before, spent_before = self._steady if step > self._steady[1] else (self._start or 0.0, self._first, 0.0)
        per_step = (time.perf_counter() - since - (spent - spent_before)) / max(step - before, 1)
        here = sum(rows for at, rows in self._ahead if self._first < at < step)
        per_row = spent / here if here else per_step / (3 * self._batch)
        return (last_step(trainer) - step) * per_step + per_row * sum(rows for at, rows in self._ahead if at >= step)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._display.close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._display.close()


def shown_loss(trainer: Trainer, records: list[Record]) -> str:
    """ "loss 1.243e-01": over all microbatches of the step, or with several processes as last logged; else ""."""
    if trainer.world_size == 1:
        return f"loss {float(torch.cat([record.loss for record in records]).mean()):.3e}"
    log = find(trainer, TimestepLog)
    return "" if log is None or log.latest is None else f"loss {log.latest:.3e}"


def memory_mb(device: torch.device) -> float:
    """Peak memory in MB: of tensors if `device` is a GPU, of this process if it is a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3  # bytes there, kilobytes elsewhere
