"""Callbacks that measure between steps, and may owe a measurement when the run was stopped there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback, callbacks_of, diffusion
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


class EvaluationCallback(StepCallback):
    """A callback that measures and logs after some steps, and changes nothing that training goes on from.

    It stands behind `checkpoint`, which saves the step before it is measured and notes what is owed; so an evaluation
    can be stopped, or killed, at any moment, and the resumed run measures first and to the bit the same.
    """

    owed = False  # whether the step that training starts from has yet to be measured; RunRecord knows

    def __init__(self) -> None:
        # Checkpoint's, which lets a signal end the evaluation and notes that it is done.
        self.around: Callable[[EvaluationCallback, int], AbstractContextManager] = lambda callback, step: nullcontext()

    def due(self, trainer: Trainer, step: int) -> bool:
        """Whether `step` is measured: a function of the step and of the run's configuration alone."""
        raise TypeError(f"{type(self).__name__} must define due")

    def evaluate(self, trainer: Trainer, module: DiffusionModule, step: int) -> None:
        """Measure and log; called on all processes."""
        raise TypeError(f"{type(self).__name__} must define evaluate")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if self.owed:
            self.owed = False
            self._act(trainer, diffusion(pl_module), trainer.global_step)

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if self.due(trainer, step):
            self._act(trainer, module, step)

    def _act(self, trainer: Trainer, module: DiffusionModule, step: int) -> None:
        with self.around(self, step):
            self.evaluate(trainer, module, step)


def evaluations(trainer: Trainer) -> list[EvaluationCallback]:
    """The trainer's evaluations, in their order."""
    return [callback for callback in callbacks_of(trainer) if isinstance(callback, EvaluationCallback)]
