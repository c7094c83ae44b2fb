"""How well the drop of the bound on a few timesteps predicts its whole drop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.policy_updates import Queue
from diffusion_lab.analyses.row_gradients import training_images
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from diffusion_lab.analyses.work import Work

LEAST = 4  # values of a correlation


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

    An interval is left out if its first checkpoint has too few rows to select from.

    Args:
        losses: (n,P) `grid_losses` of each checkpoint of one run, by step.
        queues: theirs.
        sizes: numbers of timesteps.
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


@torch.no_grad()
def grid_losses(model: Trained, grid: Tensor, images: int, batch_size: int, work: Work) -> np.ndarray:
    """(n,P) native losses of training images on the grid; an image has one noise for all timesteps and checkpoints."""
    ids, x0, cond = training_images(model, images)
    found = []
    for i in range(len(ids)):
        eps, parts = work.normal(tuple(x0.shape[1:]), int(ids[i])), []
        for t in grid.to(x0.device).split(batch_size):
            rows = {key: value[i].expand(len(t), *value.shape[1:]) for key, value in cond.items()}
            shape = len(t), *x0.shape[1:]
            parts.append(model.denoiser.loss(x0[i].expand(shape), eps.expand(shape), t, **rows).native.double())
        found.append(torch.cat(parts))
    return torch.stack(found).cpu().numpy()
