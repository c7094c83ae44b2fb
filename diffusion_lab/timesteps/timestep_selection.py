"""The F-test with which the learned Beta sampler selects its timesteps."""

from __future__ import annotations

import torch
from torch import Tensor


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
