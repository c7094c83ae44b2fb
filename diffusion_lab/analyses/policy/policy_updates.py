"""The policy updates of a run with the learned Beta sampler, and how well the drop of the bound on a few timesteps
predicts its whole drop.

At policy update j, after j earlier ones, the sampler has chosen S from the rows j - |Q| .. j - 1, and then measures row
j: the change of one image's loss on the grid. A checkpoint keeps the last |Q| rows, so checkpoints that are at most |Q|
policy updates apart have them all, and S at each update follows from the rows before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.images import weights_of_bound
from diffusion_lab.timesteps.beta_policy import best_timesteps
from diffusion_lab.timesteps.grid import default_grid, interpolated, masses, strided
from diffusion_lab.training import TrainedDiffusion

KEPT = ("changes", "totals", "filled", "selected")  # of the sampler's state
DEFAULTS = {"select_from": 5, "every": 40, "reward_every": 4, "grid_stride": 0}
LEAST = 4  # values of a correlation


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
        return best_timesteps(rows, self.bound_drops(rows), self.grid, self.weights, count)

    def drops(self, rows: Tensor, selected: Tensor) -> Tensor:
        """Drop of the bound on some timesteps, bits/dim: (n,P), (s,) -> (n,)."""
        return (interpolated(rows, self.grid) * self.weights)[:, selected].sum(1)

    def bound_drops(self, rows: Tensor) -> Tensor:
        """Drop of the whole bound, bits/dim: (n,P) -> (n,)."""
        return rows @ masses(self.weights, self.grid)


def read_queue(model: TrainedDiffusion) -> Queue:
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
    weights = weights_of_bound(model).cpu()
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


def r_squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared correlation along the first axis: (n,...), (n,...) -> (...); NaN where one of them does not vary."""
    x, y = x - x.mean(0), y - y.mean(0)
    spread = (x**2).sum(0) * (y**2).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (x * y).sum(0) ** 2 / spread, np.nan)


def jackknife_r2(drop_on: np.ndarray, drop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R^2 over updates and its jackknife's standard error: (U,K,2), (U,) -> (K,2), (K,2).

    Updates of which a drop is not known are left out; NaN with fewer than four.
    """
    known = np.isfinite(drop_on).all((1, 2)) & np.isfinite(drop)
    x, y = drop_on[known], np.broadcast_to(drop[known][:, None, None], drop_on[known].shape)
    n = len(x)
    if n < LEAST:
        return np.full(drop_on.shape[1:], np.nan), np.full(drop_on.shape[1:], np.nan)
    each = np.stack([r_squared(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(n)])
    return r_squared(x, y), np.sqrt((n - 1) * each.var(0))


def of_intervals(losses: Sequence[np.ndarray], queues: Sequence[Queue], sizes: Sequence[int]) -> np.ndarray:
    """R^2 over images of each interval between checkpoints: (intervals,K,2), selected and evenly spaced.

    `losses` has the native losses (n,P) on the grid of each checkpoint of one run, by step. An interval is left out if
    its first checkpoint has too few rows to select from.
    """
    pairs = zip(queues, map(torch.from_numpy, losses), map(torch.from_numpy, losses[1:]), strict=False)
    found = []
    for queue, before, after in pairs:
        known = min(queue.filled, len(queue.totals))
        if known < queue.settings["select_from"]:
            continue
        change, rows = before - after, queue.changes[:known]
        whole = queue.bound_drops(change).numpy()
        found.append(
            [
                [
                    float(r_squared(queue.drops(change, some).numpy(), whole))
                    for some in (queue.chosen(rows, size), evenly_spaced(len(queue.weights), size))
                ]
                for size in sizes
            ]
        )
    return np.array(found) if found else np.full((1, len(sizes), 2), np.nan)


def evenly_spaced(steps: int, count: int) -> Tensor:
    """The middles of `count` equal parts of {0..T-1}."""
    return ((torch.arange(count) + 0.5) * steps / count).long()
