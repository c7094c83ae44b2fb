"""Moving averages of the weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from diffusion_lab.averaging import AveragingRule, ConstantDecay, Name, drop_after, write
from diffusion_lab.callbacks.base import StepCallback, find
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.runs.names import AVERAGES
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import Record, StepLoop
from diffusion_lab.training.sharded import cut, gathered, whole


class EMA(StepCallback):
    """Averages of the parameters of the module's `model`, a denoiser or a generator, one per name of its rule:

        a_0 = theta_0,   a_k = (1 - s_k) a_{k-1} + s_k theta_k,   s_k = rule.shares(k)

    k counts optimizer steps. Buffers are not averaged, because they are tables or counters. Inside
    `with ema.use(module, name)` the model has the averaged weights; its own are restored afterwards, also after an
    error. If the rule asks for snapshots, each average is written to the run folder every so many steps, before the
    checkpoint of that step; a run that continues from an earlier step replaces them.

    Differs from Lightning's `EMAWeightAveraging`: every checkpoint has both raw and averaged weights under their own
    names, several averages are possible, and an update is one fused call instead of one per tensor.

    Args:
        decays: each in [0, 1); the averages are named by them, and evaluations use the first. See `ConstantDecay`.
        warmup: whether a decay is at most (1 + k)/(10 + k) at step k, so that short runs forget the initial weights.
        rule: another rule, in place of `decays` and `warmup`; None: `ConstantDecay`.

    Raises:
        ValueError: no decay, a decay outside [0, 1), or a repeated decay.
    """

    def __init__(
        self, decays: Sequence[float] = (0.9999,), warmup: bool = True, rule: AveragingRule | None = None
    ) -> None:
        self.decays = tuple(decays)
        self.rule = ConstantDecay(decays, warmup) if rule is None else rule
        self._averages: dict[Name, dict[str, Tensor]] = {}
        self._of: Callable[[], nn.Module | None] | None = None  # whose averages these are; None: of a checkpoint
        self._validating = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = cast(RunModule, pl_module).model
        if self._of is not None and self._of() is not model:
            self._averages = {}  # of another training with the same callback
        self._of, parameters = weakref.ref(model), dict(model.named_parameters())
        for average in self.rule.names:
            kept = self._averages.get(average, {})
            other = next((name for name, p in parameters.items() if name in kept and kept[name].shape != p.shape), None)
            if other is not None:
                raise ValueError(f"{other} of the average {average} must have the shape of the weight; it is damaged")
            self._averages[average] = {
                name: (cut(kept[name], p) if name in kept else p.detach()).to(p.device, torch.float32, copy=True)
                for name, p in parameters.items()
            }
        self._parameters = [p.detach() for p in parameters.values()]
        self._alike = {p.dtype for p in self._parameters} <= {torch.float32}  # not with precision="bf16-true"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        folder = Path(trainer.default_root_dir)
        if self.rule.snapshot_every and trainer.is_global_zero:
            if (
                trainer.global_step == 0
                and not isinstance(trainer.fit_loop, StepLoop)
                and any((folder / AVERAGES).glob("*/*"))
            ):
                raise ValueError(
                    f"{folder / AVERAGES} must not have snapshots of another training, which this one would replace; "
                    "use another default_root_dir of the trainer"
                )
            drop_after(folder, trainer.global_step)

    @torch.no_grad()
    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        weights = self._parameters
        if not self._alike:
            weights = [p.float() for p in weights]
        for average, share in zip(self._averages.values(), self.rule.shares(step), strict=True):
            torch.ops.aten._foreach_lerp_(list(average.values()), weights, share)
        if self.rule.snapshot_every and step % self.rule.snapshot_every == 0:
            self._write(trainer, step)

    def _write(self, trainer: Trainer, step: int) -> None:
        """Write a snapshot of each average; must be called on all processes."""
        for name, average in self._averages.items():
            content = whole(dict(average))
            if trainer.is_global_zero:
                write(Path(trainer.default_root_dir), name, step, content)

    @contextmanager
    def use(self, module: RunModule, name: Name | None = None) -> Iterator[Name]:
        """Use the average of this name (the first by default) as the module's weights inside the block."""
        name = self.rule.names[0] if name is None else name
        parameters = dict(module.model.named_parameters())
        raw = {key: p.detach().clone() for key, p in parameters.items()}
        try:
            _assign(parameters, self._averages[name])
            yield name
        finally:
            _assign(parameters, raw)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning's own validation measures the first average, as `callbacks.Validation` does."""
        model = cast(RunModule, pl_module).model
        self._of = self._of or weakref.ref(model)
        if self._averages.get(self.rule.names[0]) and self._of() is model:
            self._validating.enter_context(self.use(cast(RunModule, pl_module)))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validating.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._validating.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_of": self._of and _nothing}  # a weak reference cannot be pickled

    def state_dict(self) -> dict[str, Any]:
        return {str(name): whole(dict(average)) for name, average in self._averages.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        missing = [name for name in self.rule.names if str(name) not in state_dict]
        if missing:
            raise ValueError(
                f"{self.rule.argument}={missing} must be among the checkpoint's {sorted(state_dict)}; "
                "an average cannot start in the middle of a run"
            )
        self._averages, self._of = {name: state_dict[str(name)] for name in self.rule.names}, None


def _nothing() -> None:
    """Of a copy: no training goes on with its averages."""


@contextmanager
def averaged_weights(trainer: Trainer, module: RunModule) -> Iterator[Name | None]:
    """Eval mode with the first averaged weights if the trainer has an `EMA`; yields its name, None for raw weights."""
    ema = find(trainer, EMA)
    with eval_mode(module), nullcontext() if ema is None else ema.use(module) as name, gathered(module.modules()):
        yield name


@torch.no_grad()
def _assign(parameters: dict[str, torch.nn.Parameter], values: dict[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
