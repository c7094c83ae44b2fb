"""Which pairs of image and timestep the learned Beta sampler probes before and after an update.

    queue    the first image of the global batch, at every timestep of a grid of P points
    reward   every r-th row of the global batch, at each of the |S| selected timesteps

A pair is known by its number among the P + ceil(G/r) |S| pairs of the global batch, which decides its noise (those of
the queue may share one); so what is measured does not depend on how processes and microbatches share the pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.distributed import broadcast_, rank, world_size


class Pairs(NamedTuple):
    """N pairs of an image and a timestep."""

    x0: Tensor  # (N,C,H,W), the image of each pair
    cond: dict[str, Tensor]  # (N,...)
    t: Tensor  # (N,) timesteps
    index: Tensor  # (N,) number of the pair among those of the global batch

    @staticmethod
    def join(parts: list[Pairs]) -> Pairs:
        """All pairs, in the order of the parts."""
        x0, t, index = (torch.cat([getattr(part, name) for part in parts]) for name in ("x0", "t", "index"))
        cond = {key: torch.cat([part.cond[key] for part in parts]) for key in parts[0].cond}
        return Pairs(x0, cond, t, index)


class Probed(NamedTuple):
    """The probed pairs of one microbatch, their losses before the update, and what is rewarded."""

    pairs: Pairs  # those of the queue first
    total: int  # pairs of the global batch
    before: Tensor  # (N,) losses at theta_k
    rewarded: Tensor  # (M,C,H,W) images whose actions are rewarded; their pairs are the last M |S|
    u: Tensor  # (M,) their actions

    @staticmethod
    def join(parts: list[Probed]) -> Probed:
        """Those of all microbatches, in their order."""
        before, rewarded, u = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("before", "rewarded", "u")
        )
        return Probed(Pairs.join([part.pairs for part in parts]), parts[0].total, before, rewarded, u)


def queue_pairs(x0: Tensor, cond: dict[str, Tensor], grid: Tensor) -> Pairs:
    """The first image of the global batch, which is rank 0's, at this process's share of the grid's timesteps."""
    share = torch.arange(rank(), len(grid), world_size(), device=x0.device)

    def first(rows: Tensor) -> Tensor:
        return broadcast_(rows[:1].clone()).expand(len(share), *rows.shape[1:])

    return Pairs(first(x0), {key: first(value) for key, value in cond.items()}, grid[share], share)


def reward_pairs(
    x0: Tensor, cond: dict[str, Tensor], rows: Tensor, number: Tensor, selected: Tensor, first: int
) -> Pairs:
    """Some rows at all selected timesteps, row by row.

    Args:
        x0: (b,C,H,W) this process's and microbatch's images.
        cond: conditioning (b,...).
        rows: (M,) indices of the selected images.
        number: (M,) their numbers among the rewarded rows of the global batch.
        selected: (|S|,) timesteps.
        first: number of the first pair, after those of the queue.
    """
    size = len(selected)
    row = rows.repeat_interleave(size)
    column = torch.arange(size, device=x0.device).repeat(len(rows))
    index = first + number.repeat_interleave(size) * size + column
    return Pairs(x0[row], {key: value[row] for key, value in cond.items()}, selected[column], index)
