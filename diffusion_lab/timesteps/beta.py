"""Beta distributions on the timesteps: draws, and probabilities after rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.timesteps.context import Context

EDGE = 1e-6  # u stays this far from 0 and 1, where the density of a < 1 is infinite
ATTEMPTS = 8
COLUMNS = 2 * (2 * ATTEMPTS + 1)


def draw_beta(a: Tensor, b: Tensor, context: Context) -> Tensor:
    """u_i ~ Beta(a_i, b_i), kept in [1e-6, 1 - 1e-6]: (n,), (n,) -> (n,) float64.

    G_a/(G_a + G_b) with two Gamma variables from a fixed number of uniform ones per row of the global batch, so that
    row i's number does not depend on how the batch is split (PyTorch's Gamma uses a variable number).
    """
    numbers = context.uniform(len(a), COLUMNS)
    x, y = log_gamma(torch.cat([a, b]).double(), torch.cat(numbers.chunk(2, dim=1))).chunk(2)
    # In logarithms: with a, b << 1 both Gamma variables may underflow.
    return torch.sigmoid(x - y).clamp(EDGE, 1 - EDGE)


def log_gamma(shape: Tensor, numbers: Tensor) -> Tensor:
    """ln of Gamma(shape, 1) variables: (n,), (n, 2*ATTEMPTS + 1) uniform in [0, 1) -> (n,).

    Marsaglia & Tsang (2000): with d = k + 2/3, c = 1/(3 sqrt(d)) for shape k + 1,

        v = (1 + c z)^3,   accept d v when ln u < z^2/2 + d (1 - v + ln v),   Gamma(k) = Gamma(k + 1) u'^(1/k)

    A proposal is accepted with probability above 0.95, so all 8 fail in fewer than 4 of 1e11 cases, where the last one
    is used.
    """
    tiny = torch.finfo(torch.float64).tiny
    z = torch.special.ndtri(numbers[:, :ATTEMPTS].clamp(2**-54, 1 - 2**-53))
    u = numbers[:, ATTEMPTS : 2 * ATTEMPTS].clamp(min=tiny)
    boost = numbers[:, -1].clamp(min=2**-54)
    d = (shape + 2.0 / 3.0)[:, None]
    v = (1 + z / (3 * d.sqrt())) ** 3
    good = (v > 0) & (u.log() < 0.5 * z.square() + d * (1 - v + v.clamp(min=tiny).log()))
    good[:, -1] = True
    chosen = v.gather(1, good.long().argmax(1, keepdim=True))[:, 0].clamp(min=tiny)
    return d[:, 0].log() + chosen.log() + boost.log() / shape


def beta_masses(a: Tensor, b: Tensor, num_timesteps: int) -> Tensor:
    """Mean over rows of P(round(u (T-1)) = t), u ~ Beta(a_i, b_i): (n,), (n,) -> (T,) float64, sums to 1.

    The two end bins have half the width of the others. Computed on the host, for logs and reports.
    """
    from scipy.special import betainc  # a slow import that only logs need

    edges = (torch.arange(num_timesteps + 1, dtype=torch.float64) - 0.5) / max(num_timesteps - 1, 1)
    edges = edges.clamp(0, 1)
    edges[0], edges[-1] = 0.0, 1.0
    cdf = torch.from_numpy(
        betainc(a.detach().double().cpu().numpy()[:, None], b.detach().double().cpu().numpy()[:, None], edges.numpy())
    )
    p = cdf.diff(dim=1).clamp(min=0).mean(0)
    return (p / p.sum()).to(a.device)
