"""Lightning's training loop for a run that may have no step left."""

from __future__ import annotations

from lightning.pytorch import Trainer
from lightning.pytorch.loops.fit_loop import _FitLoop


class StepLoop(_FitLoop):
    """Starts and ends training even if no step is left: a run that was stopped after its last step has yet to finish
    the evaluations of that step and to write its result.

    Differs from Lightning's loop, which then returns at once and calls neither `on_train_start` nor `on_train_end`.
    """

    @property
    def skip(self) -> bool:
        return self.trainer.limit_train_batches == 0


def finish_at_the_last_step(trainer: Trainer) -> None:
    """Make the trainer's loop a `StepLoop`; it has no state beyond Lightning's."""
    trainer.fit_loop.__class__ = StepLoop
