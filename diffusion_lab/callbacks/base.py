"""Base classes of the callbacks: one call per optimizer step, and access to other callbacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import NoStepHooks

C = TypeVar("C", bound=Callback)


class RunCallback(NoStepHooks, Callback):
    """A callback whose hooks of a training step are None unless a subclass defines them.

    Attributes:
        may_be_infinite: names of entries of its state that may hold NaN or infinities; a checkpoint in which any other
            entry does is not written.
        drives: class of the modules that it can be used with.
    """

    may_be_infinite: tuple[str, ...] = ()
    drives: ClassVar[type[RunModule]] = RunModule


class StepCallback(RunCallback):
    """A callback that acts once after each optimizer step, independent of gradient accumulation.

    It is called by the module, which detects updates and collects the records of their microbatches.
    """

    def results(self, data: ImageDataModule) -> Sequence[str]:
        """Names of this callback's values in result.json, which `objective` may name.

        Args:
            data: the run's data module, before anything is loaded.
        """
        return ()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = cast(RunModule, pl_module)
        module.after_step.append(partial(self.on_step_end, trainer, module))

    def on_step_end(self, trainer: Trainer, module: Any, step: int, records: Any) -> None:
        """Called after the update number `step`, counted from 1.

        Args:
            trainer: the trainer.
            module: of the class `drives`.
            step: number of updates.
            records: a list of the records of its microbatches, e.g. `StepRecord`.
        """
        raise TypeError(f"{type(self).__name__} must define on_step_end")


def due(step: int, every: int, last: int) -> bool:
    """Whether something done every `every` steps is due after `step`: also at the end, never if every = 0."""
    return every > 0 and (step % every == 0 or step == last)


def callbacks_of(trainer: Trainer) -> list[Callback]:
    """The trainer's callbacks, in their order; Lightning sets the attribute without declaring it."""
    return attrgetter("callbacks")(trainer)


def find(trainer: Trainer, kind: type[C]) -> C | None:
    """The trainer's callback of this class, or None."""
    return next((callback for callback in callbacks_of(trainer) if isinstance(callback, kind)), None)


def data_of(trainer: Trainer) -> ImageDataModule:
    """The trainer's data module.

    Raises:
        ValueError: it trains on a loader of one's own.
    """
    data = getattr(trainer, "datamodule", None)
    if data is None or (isinstance(data, LightningDataModule) and not isinstance(data, ImageDataModule)):
        given = "a loader" if data is None else type(data).__name__
        raise ValueError(
            f"trainer.fit(module, ...) must be given an ImageDataModule for these callbacks, and has {given}; of them "
            "TimestepSampling, TimestepLog, EMA and Guard work with any batches, and val_dataloaders=... gives val/loss"
        )
    return data


def last_step(trainer: Trainer) -> int:
    """The number of optimizer steps after which training ends, by steps or epochs; -1 if nothing limits it."""
    epochs, steps = getattr(trainer, "max_epochs", -1), trainer.max_steps
    if epochs in (None, -1) or trainer.num_training_batches == float("inf"):
        return steps
    limit = epochs * math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
    return limit if steps == -1 else min(steps, limit)


def check_interval(name: str, value: int) -> int:
    """`value` if it is a number of steps >= 0."""
    return check_integer(name, value, 0, "0 optimizer steps turn it off")
