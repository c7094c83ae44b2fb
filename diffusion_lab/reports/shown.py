"""What a method trains on: p, w and their product, as numbers of one configuration before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shown:
    """One method; arrays are (T,) float64 with timestep 0, the least noisy, first.

    Args:
        name: of the method.
        log_snr: ln SNR of each timestep, falling.
        p: probability of each timestep.
        weight: mean weight of a draw times the weight on the loss of choice, as they are.
        note: what a reader must know, or "".
    """

    name: str
    log_snr: np.ndarray
    p: np.ndarray
    weight: np.ndarray
    note: str = ""

    @property
    def product(self) -> np.ndarray:
        """p w / sum p w: each timestep's share of the objective, as `sampler/objective` of a run's log for eps."""
        product = self.p * self.weight
        return product / product.sum()

    @property
    def nats(self) -> np.ndarray:
        """Width of each timestep's bin in ln SNR: between the midpoints to its neighbours, all of a gap at the ends.

        A share of the objective divided by it is a density in lambda = ln SNR, in which objectives on different
        schedules can be compared: on the eps-loss it is the weighting function w(lambda) of Kingma and Gao
        ("Understanding diffusion objectives as the ELBO with simple data augmentation", NeurIPS 2023), up to a factor.
        """
        return np.abs(np.gradient(self.log_snr)) if len(self.p) > 1 else np.ones(1)


EDGES = (0.002, 0.998)  # shares of p and of p w between which the axis of ln SNR lies; cosine's last bins span 10 nats
DECADES = 4  # of a logarithmic axis of weights, from the largest down


def wide(found: Sequence[Shown]) -> bool:
    """Whether the weights need a logarithmic axis: the largest is over 20 times the smallest positive one."""
    weights = np.concatenate([one.weight[one.weight > 0] for one in found])
    return len(weights) > 0 and bool(weights.max() > 20 * weights.min())


def log_snr_range(found: Sequence[Shown]) -> tuple[float, float]:
    """Lowest and highest ln SNR at which a method trains: between the quantiles `EDGES` of p and of p w of each."""
    ends = [quantiles(one.log_snr, share, EDGES) for one in found for share in (one.p, one.product)]
    return min(a for a, _ in ends), max(b for _, b in ends)


def quantiles(log_snr: np.ndarray, share: np.ndarray, levels: Sequence[float]) -> list[float]:
    """Quantiles of ln SNR (T,), which falls, under a share (T,) of the timesteps."""
    total = np.cumsum(share[::-1])  # from the noisiest, where ln SNR is lowest
    return [float(log_snr[::-1][min(np.searchsorted(total, q), len(share) - 1)]) for q in levels]


def binned(values: np.ndarray, bins: int = 20) -> np.ndarray:
    """Sums over equal ranges of timesteps, t in range floor(t bins/T), as in a run's log."""
    bins = min(bins, len(values))
    return np.bincount(np.arange(len(values)) * bins // len(values), weights=values, minlength=bins)


def on_axis(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Linear interpolation at the grid's places for a monotone x, NaN outside of it."""
    order = np.argsort(x)
    return np.interp(grid, x[order], values[order], left=np.nan, right=np.nan)
