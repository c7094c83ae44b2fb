"""How a run would train on from a checkpoint: its optimizer, the optimizer's state, and its gradient clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


def _no_state() -> dict[str, Any] | None:
    return None


@dataclass(frozen=True)
class Continuation:
    """An optimizer like that of the run, for a model that is trained on.

    Attributes:
        make: parameters -> the optimizer; Adam at 2e-4 for a model that no run trained.
        state: reads the optimizer's state from the checkpoint; None if these weights have none, e.g. averaged ones.
        clip: largest 2-norm of the gradient; None for no clipping.
    """

    make: MakeOptimizer = partial(torch.optim.Adam, lr=2e-4)
    state: Callable[[], Mapping[str, Any] | None] = _no_state
    clip: float | None = None

    def optimizer(self, parameters: Iterable[nn.Parameter], fresh: bool = False) -> tuple[Optimizer, bool]:
        """The optimizer of the parameters of a denoiser, and whether it starts without a state.

        The saved state may have further parameters behind those of the denoiser, e.g. of a learned weighting.

        Args:
            parameters: in the order of the denoiser.
            fresh: do not load the saved state.
        """
        own = list(parameters)
        optimizer = self.make(own)
        saved = None if fresh else self.state()
        if saved is None:
            return optimizer, True
        groups = [group | {"params": list(range(len(own)))} for group in saved["param_groups"][:1]]
        state = {i: value for i, value in saved["state"].items() if i < len(own)}
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        return optimizer, False
