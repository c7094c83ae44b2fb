"""Stops training at the step in which a number became NaN or infinite, before a good checkpoint is replaced."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.callbacks.base import StepCallback, find
from diffusion_lab.callbacks.method import TimestepSampling
from diffusion_lab.distributed import gather_objects, is_distributed, sum_
from diffusion_lab.training import NotFinite, RunModule, not_finite
from diffusion_lab.training.run_module import Record
from diffusion_lab.training.sharded import local, locals_of

SHOWN = 8  # timesteps and images named in a message
SMALL = 1 << 16  # largest size of a tensor that is concatenated with others to be summed in one call
# The checked quantities, in the order in which an error propagates.
WATCHED = ("the loss", "the draw's weight", "the gradient", "a weight of the network")


class _Step(NamedTuple):
    step: int
    rows: list[tuple[Tensor | None, Tensor, Tensor]]  # of each microbatch: t, objective, weight
    sums: list[Tensor]  # one of each of WATCHED; not finite if one of its numbers is not


class Guard(StepCallback):
    """Raises `NotFinite` naming the step, the timesteps and the images of the first number that is not finite: a loss,
    a draw's weight, the gradient, a weight, or the sampler's own state.

    Each quantity is summed on the device, since a sum is not finite if one of its terms is not. The host reads the sums
    of the last steps every `every` steps, so that it does not wait for a GPU in each step; on a CPU it reads them in
    every step. A checkpoint is preceded by a `check`. All processes stop together, with the same message.

    Args:
        every: optimizer steps between two checks on the host; ignored on a CPU.

    Raises:
        ValueError: every < 1.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = check_integer("every", every, 1, "use 1 to stop at once")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._steps: list[_Step] = []  # not yet checked
        self._on_cpu = pl_module.device.type == "cpu"
        weights = locals_of([p.detach() for p in pl_module.parameters()])
        # One row in memory order per tensor: views, which follow the weights.
        rows = [
            w.as_strided((w.numel(),), (1,)) if torch.ops.aten.is_non_overlapping_and_dense(w) else w for w in weights
        ]
        self._small = [row for row in rows if row.numel() <= SMALL and row.ndim == 1]
        self._large = [row for row in rows if row.numel() > SMALL or row.ndim != 1]

    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        rows = [(r.t, r.objective, torch.ones_like(r.objective) if r.weight is None else r.weight) for r in records]
        norm = module.gradient_norm
        sums = [
            _added([objective.sum() for _, objective, _ in rows]),
            _added([weight.sum() for *_, weight in rows]),
            rows[0][1].new_zeros(()) if norm is None else local(norm.detach()).sum(),
            self._weights(),
        ]
        self._steps.append(_Step(step, rows, sums))
        if self._on_cpu or step % self.every == 0:
            self.check(trainer)

    def _weights(self) -> Tensor:
        """The sum of all weights; small tensors are concatenated, because on a CPU the calls dominate."""
        parts = [row.sum() for row in self._large]
        return _added([*parts, torch.cat(self._small).sum()] if self._small else parts)

    def check(self, trainer: Trainer) -> None:
        """Raise if any number since the last check was not finite. Must be called on all processes."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        fine = self._sampler_is_finite(trainer)
        if self._on_cpu:  # where reading a number is faster than a tensor comparison
            wrong = [not all(math.isfinite(value) for value in one.sums) for one in steps]
            if fine and not any(wrong) and not is_distributed():
                return
            bad = torch.tensor(wrong)
        else:
            sums = torch.stack([torch.stack([value.double() for value in one.sums]) for one in steps])
            bad = (~torch.isfinite(sums)).any(1)
        bad[-1] |= not fine
        counts = sum_(bad.double())  # for each step, the number of processes with a sum that is not finite
        for one, count in zip(steps, counts.tolist(), strict=True):
            if count:
                self._locate(trainer, one)

    @staticmethod
    def _sampler_is_finite(trainer: Trainer) -> bool:
        sampling = find(trainer, TimestepSampling)
        if sampling is None:
            return True
        own = [*sampling.sampler.parameters(), *sampling.sampler.buffers()]
        return all(math.isfinite(value.detach().sum()) for value in own if value.is_floating_point())

    def _locate(self, trainer: Trainer, one: _Step) -> None:
        """Raise if a number of the step is not finite on any process; the sum alone may have overflowed."""
        if wrong := [fault for fault in gather_objects(self._fault(trainer, one)) if fault is not None]:
            raise NotFinite(min(wrong)[1])

    def _fault(self, trainer: Trainer, one: _Step) -> tuple[int, str] | None:
        """The index in WATCHED of the first quantity that is not finite, and the error message; None if all are."""
        steps, *rest = zip(*one.rows, strict=True)
        objective, weight = (torch.cat(parts).cpu() for parts in rest)
        t = None if steps[0] is None else torch.cat(steps).cpu()
        for place, values in enumerate((objective, weight)):
            wrong = ~torch.isfinite(values)
            if wrong.any():
                return place, _sentence(trainer, WATCHED[place], one.step, t, wrong)
        module = cast(RunModule, trainer.lightning_module)
        whole = torch.ones_like(objective, dtype=torch.bool)
        named = list(module.named_parameters())
        if self._gradient_is_wrong(trainer, one, {name: local(p.grad) for name, p in named if p.grad is not None}):
            return 2, _sentence(trainer, WATCHED[2], one.step, t, whole)
        if name := not_finite({name: local(p.detach()) for name, p in named}):
            return 3, _sentence(trainer, f"the weight {name}", one.step, t, whole)
        sampling = find(trainer, TimestepSampling)
        if sampling is not None and (name := not_finite(sampling.state_dict(), sampling.may_be_infinite)):
            return 4, _sentence(trainer, f"the sampler's {name}", one.step, t, whole)
        return None

    @staticmethod
    def _gradient_is_wrong(trainer: Trainer, one: _Step, gradients: dict[str, Tensor]) -> bool:
        """Whether the gradient made the weights wrong: by its norm in that step if recorded, else by its values now."""
        if not not_finite(one.sums[3:]) or getattr(trainer.precision_plugin, "scaler", None) is not None:
            return False  # a scaler skips a step whose gradient overflows
        if cast(RunModule, trainer.lightning_module).gradient_norm is not None:
            return not_finite(one.sums[2:3]) is not None
        return not_finite(gradients) is not None


def _sentence(trainer: Trainer, what: str, step: int, t: Tensor | None, rows: Tensor) -> str:
    order = getattr(getattr(trainer, "datamodule", None), "order", None)
    timesteps = "" if t is None else f", timesteps {_shown(t[rows])}"
    images = "" if order is None else f" of images {_shown(order.local_indices(step - 1)[rows])}"
    return (
        f"{what} is not finite at optimizer step {step}{timesteps}{images}; checkpoints are from "
        "before it, and the same command continues from the last one when the cause is removed. Lower "
        "optimizer.lr, which is a new run, or check these images"
    )


def _shown(values: Tensor) -> str:
    return str(values.tolist()[:SHOWN])


def _added(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(values).sum()
