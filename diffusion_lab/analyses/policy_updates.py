"""The policy updates of a run with the learned Beta sampler, from the queues in its checkpoints.

At policy update j, after j earlier ones, the sampler has chosen S from the rows j - |Q| .. j - 1, and then measures row
j: the change of one image's loss on the grid. A checkpoint keeps the last |Q| rows, so checkpoints that are at most |Q|
policy updates apart have them all, and S at each update follows from the rows before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffusion_lab.diffusion import bound_weights
from diffusion_lab.timesteps.beta_policy import best_timesteps
from diffusion_lab.timesteps.grid import default_grid, interpolated, masses, strided
from diffusion_lab.training import Trained

KEPT = ("changes", "totals", "filled", "selected")  # of the sampler's state
DEFAULTS = {"select_from": 5, "every": 40, "reward_every": 4, "grid_stride": 0}


class Queue(NamedTuple):
    """What a checkpoint has of the sampler.

    Attributes:
        changes: (|Q|,P) rows, row number j in place j mod |Q|.
        totals: (|Q|,) their sums with the bound's weights.
        filled: rows since the start.
        selected: (|S|,) S.
        grid: (P,) timesteps.
        weights: (T,) c_t.
        settings: of the sampler, by the names in `DEFAULTS`.
    """

    changes: Tensor
    totals: Tensor
    filled: int
    selected: Tensor
    grid: Tensor
    weights: Tensor
    settings: Mapping[str, int]

    def rows(self) -> dict[int, Tensor]:
        """The rows that it still has, by number."""
        size = len(self.totals)
        return {j: self.changes[j % size] for j in range(max(0, self.filled - size), self.filled)}

    def chosen(self, rows: Tensor, count: int) -> Tensor:
        """The `count` timesteps that the sampler would select from rows (n,P)."""
        return best_timesteps(rows, rows @ masses(self.weights, self.grid), self.grid, self.weights, count)

    def drops(self, rows: Tensor, selected: Tensor) -> Tensor:
        """Drop of the bound on some timesteps, bits/dim: (n,P), (s,) -> (n,)."""
        return (interpolated(rows, self.grid) * self.weights)[:, selected].sum(1)

    def bound_drops(self, rows: Tensor) -> Tensor:
        """Drop of the whole bound, bits/dim: (n,P) -> (n,)."""
        return rows @ masses(self.weights, self.grid)


def read_queue(model: Trained) -> Queue:
    """The queue in a model's checkpoint, which is not trusted.

    Raises:
        ValueError: the run has another sampler, or a queue that does not fit its configuration.
    """
    state = model.sampler
    if not all(isinstance(state.get(key), Tensor) for key in KEPT):
        raise ValueError(f"run={model.name} must be trained with the learned Beta sampler; use sampler=learned_beta")
    changes, totals, filled, selected = (state[key].cpu() for key in KEPT)
    node: dict[str, Any] = model.config.get("sampler") or {}
    settings = {key: int(node.get(key, value)) for key, value in DEFAULTS.items()}
    d = model.denoiser
    weights = bound_weights(d.schedule, d.prediction, d.variance).cpu()
    steps, stride = len(weights), settings["grid_stride"]
    grid = strided(steps, stride) if 0 < stride < steps else default_grid(weights)
    known = min(int(filled), len(totals)) if filled.ndim == 0 else 0
    fits = (
        changes.shape == (*totals.shape, len(grid))
        and selected.ndim == 1
        and bool(torch.isfinite(changes).all() & (selected >= 0).all() & (selected < steps).all())
    )
    rows = changes[:known].double()
    if not fits or not torch.allclose(rows @ masses(weights, grid), totals[:known].double(), rtol=1e-4, atol=1e-9):
        raise ValueError(
            f"run={model.name} must have a queue of its own grid and bound; use sampler=learned_beta as its yaml has it"
        )
    return Queue(changes.double(), totals.double(), int(filled), selected.long(), grid, weights, settings)


def history(queues: Sequence[Queue]) -> dict[int, Tensor]:
    """The rows of all checkpoints of one run, by number."""
    rows: dict[int, Tensor] = {}
    for queue in queues:
        rows |= queue.rows()
    return dict(sorted(rows.items()))


def selection_at(number: int, rows: Mapping[int, Tensor], queue: Queue, count: int) -> Tensor | None:
    """The S of `count` timesteps that policy update `number` uses; None where the rows before it are not known.

    Before there are rows enough it is {0, 1, ..}, as published.
    """
    first = max(0, number - len(queue.totals))
    if number < queue.settings["select_from"]:
        return torch.arange(count)
    if any(j not in rows for j in range(first, number)):
        return None
    # In the order of the ring: correlations do not depend on it, but rounding does.
    ring = sorted(range(first, number), key=lambda j: j % len(queue.totals))
    return queue.chosen(torch.stack([rows[j] for j in ring]), count)
