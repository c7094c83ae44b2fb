"""What a method trains on: p, w and their product, as numbers of one configuration before training."""

from __future__ import annotations

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

        A share of the objective on the eps-loss divided by it is the weighting function w(lambda) of Kingma and Gao
        (2023, section 2.2), of which a schedule is only the coordinates.
        """
        return np.abs(np.gradient(self.log_snr)) if len(self.p) > 1 else np.ones(1)


def binned(values: np.ndarray, bins: int = 20) -> np.ndarray:
    """Sums over equal ranges of timesteps, t in range floor(t bins/T), as in a run's log."""
    bins = min(bins, len(values))
    return np.bincount(np.arange(len(values)) * bins // len(values), weights=values, minlength=bins)


def on_axis(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Linear interpolation at the grid's places for a monotone x, NaN outside of it."""
    order = np.argsort(x)
    return np.interp(grid, x[order], values[order], left=np.nan, right=np.nan)
