"""Callbacks that evaluate the model between steps and repeat an evaluation that was interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, callbacks_of, last_step, run_module
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import Record


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
            self._act(trainer, run_module(pl_module), trainer.global_step)

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
