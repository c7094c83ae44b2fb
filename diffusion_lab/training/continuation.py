"""How a run would train on from a checkpoint: its optimizer, the optimizer's state, and its gradient clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
        """The optimizer of the parameters of a denoiser, in its order, and whether it starts without a state, as a
        `fresh` one does.

        The saved state may have further parameters behind those of the denoiser, e.g. of a learned weighting.
        """
        optimizer = self.make(parameters)
        saved = None if fresh else self.state()
        if saved is None:
            return optimizer, True
        optimizer.load_state_dict(_of_first(saved, [len(group["params"]) for group in optimizer.param_groups]))
        return optimizer, False


def _of_first(saved: Mapping[str, Any], sizes: Sequence[int]) -> dict[str, Any]:
    """The saved state of the first parameters of each group, numbered from 0."""
    groups, state = [], {}
    for group, size in zip(saved["param_groups"], sizes, strict=False):
        first = sum(len(before["params"]) for before in groups)
        groups.append(group | {"params": list(range(first, first + size))})
        numbers = dict(enumerate(group["params"][:size], first))
        state |= {new: saved["state"][old] for new, old in numbers.items() if old in saved["state"]}
    return {"state": state, "param_groups": groups}
