"""Mean of a quantity as a function of the timestep, over any number of batches and processes.

For timestep t, with the values v_1..v_n seen there:

    count_t = n,   sum_t = v_1 + .. + v_n,   square_t = v_1^2 + .. + v_n^2     float64, on the device

An update stores the batch; `TOGETHER` batches are then added by three calls of `index_add_`, in the same order as one
by one, because the calls take longer than the additions. The host does not wait for the device. Ranks are summed only
by `totals`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.distributed import sum_

TOGETHER = 32  # batches


class Totals(NamedTuple):
    """count, sum and sum of squares, each (T,) float64."""

    count: Tensor
    sum: Tensor
    square: Tensor

    def mean(self) -> Tensor:
        """(T,) mean; NaN for timesteps without values."""
        return self.sum / self.count

    def variance(self) -> Tensor:
        """(T,) variance with divisor count; NaN for timesteps without values."""
        return (self.square / self.count - self.mean() ** 2).clamp(min=0)


class TimestepMean(nn.Module):
    """Running count, sum and sum of squares per timestep.

    Args:
        num_timesteps: T >= 1.

    Raises:
        ValueError: num_timesteps < 1.
    """

    count: Tensor
    sum: Tensor
    square: Tensor

    def __init__(self, num_timesteps: int) -> None:
        super().__init__()
        check_integer("num_timesteps", num_timesteps, 1, "use 1000 as most papers do")
        for name in Totals._fields:
            self.register_buffer(name, torch.zeros(num_timesteps, dtype=torch.float64))
        self._kept: list[tuple[Tensor, Tensor]] = []

    def update(self, t: Tensor, value: Tensor) -> None:
        """Add value[i] (B,) at timestep t[i] (B,) int64 in {0..T-1}; neither may be changed in place afterwards."""
        self._kept.append((t, value.detach()))
        if len(self._kept) == TOGETHER:
            self._add()

    def _add(self) -> None:
        """Add the stored batches to the tables."""
        if not self._kept:
            return
        t, value = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        self._kept = []
        value = value.double()
        self.count.index_add_(0, t, torch.ones_like(value))
        self.sum.index_add_(0, t, value)
        self.square.index_add_(0, t, value * value)

    def totals(self, across_ranks: bool = False) -> Totals:
        """Totals since the start or the last `reset`; with `across_ranks` it must be called on all ranks."""
        self._add()
        stacked = torch.stack([self.count, self.sum, self.square])
        return Totals(*(sum_(stacked) if across_ranks else stacked))

    def reset(self) -> None:
        """Set all totals to zero."""
        self._kept = []
        for buffer in self.buffers():
            buffer.zero_()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self._add()
        super()._save_to_state_dict(destination, prefix, keep_vars)
