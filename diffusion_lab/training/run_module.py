"""The part of a LightningModule that every kind of model has: the position of a step, and what may be saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.fit_loop import _FitLoop
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Position
from diffusion_lab.training.finite import NotFinite, not_finite
from diffusion_lab.training.validation_loss import LossMean

AfterStep = Callable[[int, list[Any]], object]


class Record(Protocol):
    """The rows of one microbatch, detached from the graph, as the callbacks of every kind of model read them."""

    @property
    def t(self) -> Tensor | None:
        """(b,) timesteps; None if the model has none."""
        ...

    @property
    def loss(self) -> Tensor:
        """(b,) the loss that a progress bar shows."""
        ...

    @property
    def objective(self) -> Tensor:
        """(b,) what is differentiated, before the draw's weight."""
        ...

    @property
    def weight(self) -> Tensor | None:
        """(b,) weight of each row from the draw; None for 1."""
        ...


class NoStepHooks:
    """Hooks of a training step that are None, for callbacks and modules; a subclass defines those that it uses.

    Lightning calls each of these hooks of each callback in every step; for eleven callbacks with empty hooks this takes
    as long as a tiny network's forward pass. It skips a hook that is None.
    """

    on_train_batch_start: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None
    on_before_optimizer_step: Any = None
    on_train_batch_end: Any = None


class _EndOfBatch(NoStepHooks, Callback):
    """Ends each batch of a `RunModule`."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        if isinstance(pl_module, RunModule):  # the trainer may have been given another module since
            pl_module.end_batch(outputs)


class RunModule(NoStepHooks, LightningModule):
    """A module that trains in steps whose random numbers are functions of their position.

    A subclass defines `model`, `network`, `configure_optimizers`, and `training_step`, which calls `_tick` first and
    returns a dict with the entry `record`.

    Args:
        streams: the run's random numbers.
    """

    of_batch: ClassVar[bool] = False  # whether a row's loss depends on other rows; then nothing can be accumulated

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self.streams = streams
        self.after_step: list[AfterStep] = []  # called in this order after each optimizer step
        self.restoring = False  # True from the loading of a checkpoint to the first step
        self._position = Position(-1)
        self._records: list[Any] = []
        self.gradient_norm: Tensor | None = None  # of the last update, before clipping; None without clipping
        self._means: dict[str, LossMean] | None = None  # of a trainer of one's own
        self._norms: list[Any] = [0.0, 0]  # their sum and number since the last call of `mean_gradient_norm`

    @property
    def model(self) -> nn.Module:
        """What generates images: its weights are averaged and evaluated."""
        raise TypeError(f"{type(self).__name__} must define model")

    @property
    def network(self) -> nn.Module:
        """What has all the weights that are trained."""
        raise TypeError(f"{type(self).__name__} must define network")

    def facts(self) -> dict[str, Any]:
        """Plain values of the model for run.json."""
        return {}

    def mean_gradient_norm(self) -> Tensor | None:
        """() the mean norm of the gradient before clipping since the last call of this method or the start; None if
        gradients are not clipped, or are sharded, where each norm would have to be gathered."""
        (total, count), self._norms = self._norms, [0.0, 0]
        return total / count if count else None

    def logged(self, record: Any) -> dict[str, Tensor]:
        """Name -> (b,) of which a trainer of one's own logs the mean."""
        return {"train/loss": record.loss}

    # -- position -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Step, process and microbatch of the current training step."""
        return self._position

    def on_fit_start(self) -> None:
        self.after_step, self._records = [], []

    def on_train_start(self) -> None:
        trainer = self.trainer
        if _EndOfBatch not in {type(one) for one in attrgetter("callbacks")(trainer)}:
            raise TypeError(
                f"{type(self).__name__}.configure_callbacks must return super().configure_callbacks() and its own, "
                "because these end each step"
            )
        self._position = Position(
            -1, trainer.global_rank, trainer.world_size, accumulate=trainer.accumulate_grad_batches
        )
        self._means = None if isinstance(trainer.fit_loop, StepLoop) else {}
        if self.device.type == "cpu":
            # An optimizer checks for a GPU in every step, and with Lightning's setting of this variable the check opens
            # NVIDIA's library, which takes 0.1 to 0.4 ms without a GPU.
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
        for optimizer in trainer.optimizers:
            check_state(optimizer)
            match_layout(optimizer)
        self.restoring = False

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Convert the saved count of microbatches to the present `accumulate_grad_batches`, which may have changed.

        Lightning steps the optimizer when its count of microbatches is a multiple of that number. A trainer that counts
        epochs must keep it within an epoch, and also steps after the last microbatches of an epoch when they are fewer:
        there the saved count is right, and is not that of the steps.
        """
        if self._trainer is None:
            return
        self.restoring = True
        accumulate = self.trainer.accumulate_grad_batches
        if checkpoint.get("accumulate") == accumulate and not isinstance(self.trainer.fit_loop, StepLoop):
            return
        done = checkpoint["global_step"] * accumulate
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        growth = done - progress["total"]["ready"]
        for counts in (progress["total"], progress["current"]):
            counts.update({key: value + growth for key, value in counts.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to save a state from which training could not continue.

        Checks the weights, the optimizer's state and the state of callbacks with the attribute `may_be_infinite`, the
        names of entries that may hold NaN and infinities.

        Raises:
            NotFinite: an entry is not finite; on all processes, with the name of the first.
        """
        parts: dict[str, Any] = {"state_dict": checkpoint["state_dict"]}
        parts["optimizer_states"] = [optimizer["state"] for optimizer in checkpoint.get("optimizer_states", [])]
        allowed: set[str] = set()
        callbacks: list[Any] = [] if self._trainer is None else attrgetter("callbacks")(self.trainer)
        for callback in callbacks:
            if hasattr(callback, "may_be_infinite"):
                allowed |= set(callback.may_be_infinite)
                parts[callback.state_key] = checkpoint.get("callbacks", {}).get(callback.state_key, {})
        if name := not_finite(parts, allowed):
            raise NotFinite(
                f"{name} is not finite after optimizer step {checkpoint['global_step']}, so its checkpoint was not "
                "written; earlier checkpoints are from before it"
            )
        checkpoint["may_be_infinite"] = sorted(allowed)
        if self._trainer is not None:
            checkpoint["accumulate"] = self.trainer.accumulate_grad_batches

    def _tick(self, rows: int = 0) -> None:
        """Count microbatches since the last optimizer step; Lightning's own count is off by one after a crash."""
        step, before = self.global_step, self._position
        if step == before.step:
            self._position = before._replace(micro=before.micro + 1, here=rows)
        else:
            self._position = before._replace(step=step, micro=0, first=rows, here=rows)

    def configure_callbacks(self) -> list[Callback]:
        """Ends each batch before a `ModelCheckpoint` of Lightning writes; a hook of the module would come after it, and
        the checkpoint would lack the last update of the averages and what the sampler has seen of it."""
        there = {type(one) for one in attrgetter("callbacks")(self.trainer)}
        return [] if _EndOfBatch in there else [_EndOfBatch()]

    def end_batch(self, outputs: dict[str, Any]) -> None:
        """Call `after_step` after the last microbatch of an update, in which `global_step` has increased."""
        self._records.append(outputs["record"])
        if self._means is not None:
            for name, rows in self.logged(outputs["record"]).items():
                self._means.setdefault(name, LossMean()).add(rows)
        step = self.global_step
        if step > self._position.step:
            records, self._records = self._records, []
            if self.gradient_norm is not None and not isinstance(self.gradient_norm, DTensor):
                self._norms = [self._norms[0] + self.gradient_norm, self._norms[1] + 1]
            for act in self.after_step:
                act(step, records)

    def on_train_epoch_end(self) -> None:
        self.log_train_loss()

    def log_train_loss(self) -> None:
        """Log the means of `logged` since the last call, through Lightning; our own trainer has `TimestepLog`."""
        for name, mean in (self._means or {}).items():
            if mean:
                self.log(name, mean.take().float(), sync_dist=True)


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Check what an optimizer was given from a checkpoint, which it takes as it is.

    A fused one reads and writes moments of another size beyond their end. What others keep of a weight may have any
    shape, such as the factors of Shampoo.

    Raises:
        ValueError: a moment does not fit its weight, or a setting is a text where the optimizer has a number.
    """
    if any(group.get("fused") for group in optimizer.param_groups):
        for weight, state in optimizer.state.items():
            for key, value in state.items():
                shape = tuple(value.shape) if isinstance(value, Tensor) else value
                if shape not in (None, tuple(weight.shape)) and not (key == "step" and shape == ()):
                    raise ValueError(f"{key}={shape!r:.80} must have the shape of its weight, {tuple(weight.shape)}")
    for group in optimizer.param_groups:
        for key, default in optimizer.defaults.items():
            given = group.get(key)  # the groups of Muon have other settings
            values = given if isinstance(given, list | tuple) else (given,)
            if isinstance(default, int | float | tuple) and {str, dict}.intersection(map(type, values)):
                raise ValueError(f"{key}={given!r:.80} must be a number as in the optimizer's settings, {default}")


def match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimizer's moments the memory format of their weights.

    A fused optimizer reads both in memory order without a check, and moments from a checkpoint have the memory format
    in which they were saved, which differs if `channels_last` has changed.
    """
    for weight, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                state[key] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def seed_dropout(streams: Streams, position: Position, device: torch.device) -> None:
    """Seed PyTorch's global generators, which only dropout uses, from the position.

    Masks differ between processes and microbatches, so how the batch is cut up changes more than the order of sums only
    with such dropout. Withheld labels, flips, noise and timesteps are drawn for the global batch.
    """
    key = streams.key("dropout", position.step, position.micro, position.rank)
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(key)


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
