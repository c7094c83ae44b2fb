"""Exponential moving averages of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.callbacks.base import StepCallback, find, run_module
from diffusion_lab.training import RunModule
from diffusion_lab.training.run_module import Record
from diffusion_lab.training.sharded import cut, gathered, whole


class EMA(StepCallback):
    """Averages of the parameters of the module's `model`, a denoiser or a generator, one per decay:

        a_0 = theta_0,   a_k = d a_{k-1} + (1 - d) theta_k,   d = decay, or min(decay, (1 + k)/(10 + k)) with warm-up

    k counts optimizer steps. Buffers are not averaged, because they are tables or counters. Inside
    `with ema.use(module, decay)` the model has the averaged weights; its own are restored afterwards, also after an
    error.

    Differs from Lightning's `EMAWeightAveraging`: every checkpoint has both raw and averaged weights under their own
    names, several decays are possible, and an update is one fused call instead of one per tensor.

    Args:
        decays: each in [0, 1); evaluations use the first. 0.9999 in most papers at 500k steps.
        warmup: whether the decay rises with the step, so that short runs forget the initial weights
            (ku-dmlab/Adaptive-Timestep-Sampler and ddpm-torch use it).

    Raises:
        ValueError: no decay, a decay outside [0, 1), or a repeated decay.
    """

    def __init__(self, decays: Sequence[float] = (0.9999,), warmup: bool = True) -> None:
        if len(decays) == 0 or len(set(decays)) != len(decays):
            raise ValueError(f"decays={list(decays)} must name at least one decay, each once; use [0.9999]")
        for decay in decays:
            check_number("decays", decay, "[)", 0, 1, "use 0.9999 for the published setting")
        self.decays, self.warmup = tuple(decays), warmup
        self._averages: dict[float, dict[str, Tensor]] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        parameters = dict(run_module(pl_module).model.named_parameters())
        for decay in self.decays:
            kept = self._averages.get(decay, {})
            self._averages[decay] = {
                name: (cut(kept[name], p) if name in kept else p.detach()).to(p.device, torch.float32, copy=True)
                for name, p in parameters.items()
            }
        self._parameters = [p.detach() for p in parameters.values()]

    @torch.no_grad()
    def on_step_end(self, trainer: Trainer, module: RunModule, step: int, records: list[Record]) -> None:
        for decay, average in self._averages.items():
            d = min(decay, (1 + step) / (10 + step)) if self.warmup else decay
            torch.ops.aten._foreach_lerp_(list(average.values()), self._parameters, 1.0 - d)

    @contextmanager
    def use(self, module: RunModule, decay: float | None = None) -> Iterator[float]:
        """Use the average with this decay (the first by default) as the module's weights inside the block."""
        decay = self.decays[0] if decay is None else decay
        parameters = dict(module.model.named_parameters())
        raw = {name: p.detach().clone() for name, p in parameters.items()}
        try:
            _assign(parameters, self._averages[decay])
            yield decay
        finally:
            _assign(parameters, raw)

    def state_dict(self) -> dict[str, Any]:
        return {str(decay): whole(dict(average)) for decay, average in self._averages.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        missing = [decay for decay in self.decays if str(decay) not in state_dict]
        if missing:
            raise ValueError(
                f"decays={missing} must be among the checkpoint's {sorted(state_dict)}; "
                "an average cannot start in the middle of a run"
            )
        self._averages = {decay: state_dict[str(decay)] for decay in self.decays}


@contextmanager
def averaged_weights(trainer: Trainer, module: RunModule) -> Iterator[float | None]:
    """Eval mode with the first averaged weights if the trainer has an `EMA`; yields the decay, None for raw weights."""
    ema, training = find(trainer, EMA), module.training
    module.eval()
    try:
        if ema is None:
            with gathered(module.modules()):
                yield None
        else:
            with ema.use(module) as decay, gathered(module.modules()):
                yield decay
    finally:
        module.train(training)


@torch.no_grad()
def _assign(parameters: dict[str, torch.nn.Parameter], values: dict[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
