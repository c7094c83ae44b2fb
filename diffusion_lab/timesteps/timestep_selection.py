"""The F-test with which the learned Beta sampler selects its timesteps."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.timesteps.grid import interpolated


def f_statistic(deltas: Tensor, total: Tensor) -> Tensor:
    """Univariate F-test of each column against the total: (n,T), (n,) -> (T,) float64.

        F = r^2/(1 - r^2) (n - 2),   r the correlation of the column with the total

    -inf for a column, or a total, that does not vary. Equal to scikit-learn's `f_regression`.

    Raises:
        ValueError: fewer than 2 rows.
    """
    if len(deltas) < 2:
        raise ValueError(f"deltas of {len(deltas)} rows must have at least 2; push more rows first")
    x = deltas.double() - deltas.double().mean(0)
    y = total.double() - total.double().mean()
    spread = x.square().sum(0) * y.square().sum()
    r2 = ((x * y[:, None]).sum(0).square() / spread.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    f = r2 / (1 - r2) * (len(deltas) - 2)
    # With two rows every correlation is 1 and F is 0 * inf: no column is better than another.
    f = torch.nan_to_num(f, nan=0.0, posinf=torch.inf)
    return torch.where(spread > 0, f, -torch.inf)


def best_timesteps(changes: Tensor, totals: Tensor, grid: Tensor, weights: Tensor, count: int) -> Tensor:
    """The timesteps whose weighted change best predicts the total: (count,) int64, increasing.

    Args:
        changes: (n,P) changes of the loss on the grid.
        totals: (n,) changes of the bound.
        grid: (P,) timesteps.
        weights: (T,) c_t of the bound.
        count: |S|.
    """
    score = f_statistic(interpolated(changes, grid) * weights, totals)
    best = score.argsort(stable=True)[-count:]  # among equals the last, as NumPy's sort has it
    return best.sort().values
