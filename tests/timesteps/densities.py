"""Draws against densities, independently of how a sampler computes its probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import TimestepSampler

DRAWS = 1_000_000
Density = Callable[[np.ndarray], np.ndarray]


def drawn(sampler: TimestepSampler, seed: int = 0) -> Tensor:
    """How often each timestep is drawn in 10^6 draws: (T,)."""
    t = sampler.quantile(Streams(seed).uniform(DRAWS, "testing"), 0)
    return torch.bincount(t, minlength=sampler.num_timesteps).double()


def integrated(density: Density, edges: Tensor) -> Tensor:
    """Integrals of a density between edges by Gauss-Legendre quadrature with 32 nodes: (n+1,) -> (n,)."""
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(32))
    half = 0.5 * edges.diff()[:, None]
    x = edges[:-1, None] + half * (1 + nodes)
    return (torch.from_numpy(density(x.numpy())) * weights * half).sum(1)


def misfit(counts: Tensor, masses: Tensor) -> float:
    """Chi-square of counts against masses, in standard deviations (Wilson & Hilferty 1931). Bins with fewer than 10
    expected draws are left out."""
    expected = masses / masses.sum() * counts.sum()
    keep = expected >= 10
    freedom = 2 / (9 * (int(keep.sum()) - 1))
    chi2 = float(((counts - expected)[keep].square() / expected[keep]).sum())
    return ((chi2 * freedom * 9 / 2) ** (1 / 3) - (1 - freedom)) / freedom**0.5
