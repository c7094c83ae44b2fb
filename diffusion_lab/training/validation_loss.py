"""Validation loss for comparing runs: fixed timesteps, fixed noise, no sampler, no weight.

Image i of N validation images is measured `repeats` times. Repeat r has

    t = floor(T (pi_r(i) + 1/2) / N),   pi_r a fixed permutation of {0..N-1},   eps a function of (seed, i, r)

so the timesteps are equally spread, and all runs with the same seed and data set use the same (image, t, eps). The
loss is the native one, unweighted; sums are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.distributed import sum_
from diffusion_lab.streams import Streams


def fixed_timesteps(ids: Tensor, total: int, num_timesteps: int, repeat: int, streams: Streams) -> Tensor:
    """t (n,) int64 of the images `ids` (n,) out of `total`, at repeat number `repeat`."""
    order = torch.randperm(total, generator=streams.generator("cpu", "eval", 0, repeat))
    return ((order[ids] + 0.5) * num_timesteps / total).long().clamp_(max=num_timesteps - 1)


def fixed_noise(ids: Tensor, shape: tuple[int, ...], repeat: int, streams: Streams) -> Tensor:
    """eps (n, *shape) of the images `ids`, each a function of its own id and independent of the batch size."""
    return torch.stack([streams.normal(shape, "eval", 1, repeat, int(i)) for i in ids])


@torch.no_grad()
def validation_losses(
    denoiser: Denoiser,
    image: Tensor,
    ids: Tensor,
    total: int,
    repeat: int,
    streams: Streams,
    cond: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """t (n,) and native loss (n,) of one batch of validation images (n,C,H,W) in [-1, 1].

    Args:
        denoiser: in eval mode, on the device of `image`.
        ids: (n,) their numbers among `total` validation images.
        repeat: number of the repeat.
    """
    t = fixed_timesteps(ids.cpu(), total, denoiser.num_timesteps, repeat, streams).to(image.device)
    eps = fixed_noise(ids, tuple(image.shape[1:]), repeat, streams).to(image.device)
    return t, denoiser.loss(image, eps, t, **(cond or {})).native


class BinnedLoss:
    """The mean loss of each of `bins` equal ranges of timesteps, t in range floor(t bins/T), summed in float64.

    Args:
        bins: number of ranges, 1..T.
        num_timesteps: T.
        device: of the losses.
    """

    def __init__(self, bins: int, num_timesteps: int, device: torch.device) -> None:
        self.bins, self.num_timesteps = bins, num_timesteps
        self._table = torch.zeros(2, bins, dtype=torch.float64, device=device)

    def add(self, t: Tensor, loss: Tensor) -> None:
        """Add the losses (n,) at timesteps (n,)."""
        values = torch.stack([loss.double(), torch.ones_like(loss, dtype=torch.float64)])
        self._table.index_add_(1, t * self.bins // self.num_timesteps, values)

    def mean(self) -> Tensor:
        """(bins,) over all processes, on which it must be called once; NaN for a range without losses."""
        total, count = sum_(self._table)
        return total / count
