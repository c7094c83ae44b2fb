"""Grids: a function of all T timesteps, measured at P of them and linear between.

Symbols: T timesteps; t_0 = 0 < t_1 < .. < t_{P-1} = T-1 the grid; h_j(t) the hat that is 1 at t_j, 0 at the other
points and linear between, so that f(t) = sum_j f(t_j) h_j(t).
"""

from __future__ import annotations

import torch
from torch import Tensor

POINTS, BY_WEIGHT = 100, 0.7  # of the default grid; the share of them that is placed by the reward's weights


def placed(mass: Tensor, count: int) -> Tensor:
    """A grid whose density follows the mass of the timesteps: (T,) >= 0, not all 0 -> (min(count, T),) int64.

    Point j is the timestep at which D, the sum of the density d, passes j + 1/2,

        D_t = sum_{s<=t} d_s,   d_t = min(1, k m_t),   D_{T-1} = count

    and the first and the last are moved to 0 and T-1. No timestep has two points, because no d is above 1; k is chosen
    so that the excess is distributed to the others in proportion.

    Args:
        mass: m_t.
        count: P >= 2; at most T are used.
    """
    total = len(mass)
    if count >= total:
        return torch.arange(total, device=mass.device)
    density = torch.zeros_like(mass, dtype=torch.float64)
    full = torch.zeros_like(mass, dtype=torch.bool)
    while True:
        rest = torch.where(full, 0.0, mass.double())
        density = torch.where(full, 1.0, rest / rest.sum() * (count - int(full.sum())))
        if not bool((density > 1).any()):
            break
        full |= density > 1
    middles = torch.arange(count, dtype=torch.float64, device=mass.device) + 0.5
    points = torch.searchsorted(density.cumsum(0), middles).clamp(max=total - 1)
    points[0], points[-1] = 0, total - 1
    return points


def default_grid(reward_weights: Tensor) -> Tensor:
    """100 of T timesteps, 70 % of them by the weights c (T,) and the rest evenly; all where T is 100 or less."""
    c = reward_weights.double()
    even = torch.full_like(c, 1 / len(c))
    return placed(torch.lerp(even, c / c.sum(), BY_WEIGHT) if bool(c.sum() > 0) else even, POINTS)


def strided(total: int, stride: int) -> Tensor:
    """0, stride, 2 stride, .. and T-1: (P,) int64."""
    points = torch.arange(0, total, stride)
    return points if points[-1] == total - 1 else torch.cat([points, points.new_tensor([total - 1])])


def interpolated(values: Tensor, grid: Tensor) -> Tensor:
    """f at all timesteps from f on the grid: (..., P), (P,) int64 -> (..., T) float64."""
    if len(grid) == 1:
        return values.double()
    t = torch.arange(int(grid[-1]) + 1, device=grid.device)
    right = torch.searchsorted(grid, t).clamp(1, len(grid) - 1)
    left = right - 1
    share = (t - grid[left]).double() / (grid[right] - grid[left]).double()
    return values[..., left].double() * (1 - share) + values[..., right].double() * share


def masses(weights: Tensor, grid: Tensor) -> Tensor:
    """w_j = sum_t c_t h_j(t), so that sum_t c_t f(t) = sum_j w_j f(t_j): (T,), (P,) int64 -> (P,) float64.

    On the grid of all timesteps they are the weights themselves.
    """
    hats = interpolated(torch.eye(len(grid), dtype=torch.float64, device=grid.device), grid)
    return hats @ weights.double()
