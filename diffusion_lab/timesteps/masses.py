"""Probabilities of the timesteps from a continuous distribution of the noise: its mass in one bin for each timestep.

Let a path be known at T timesteps by a number g_0 .. g_{T-1} that rises or falls with t, such as its parameter s or
ln SNR. The bin of timestep t is what lies between

    e_t = (g_{t-1} + g_t)/2   and   e_{t+1} = (g_t + g_{t+1})/2

so p_t is the probability that t is the nearest timestep. The outer bins are open, unless the distribution is truncated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import NoiseSchedule


def halfway(grid: Tensor) -> Tensor:
    """The edges e_1 .. e_{T-1} between neighbours: (T,) -> (T-1,)."""
    return 0.5 * (grid[1:] + grid[:-1])


def open_masses(below: Tensor, above: Tensor) -> Tensor:
    """Masses of T bins, the outer ones open, from P(below e_j) and P(above e_j) at the inner edges: (T-1,) -> (T,)."""
    zero, one = below.new_zeros(1), below.new_ones(1)
    return masses(torch.cat([zero, below, one]), torch.cat([one, above, zero]))


def masses(below: Tensor, above: Tensor) -> Tensor:
    """Masses between n + 1 edges, from the probabilities on either side of each: (n+1,), (n+1,) -> (n,)."""
    # Near 1 a probability has no digits left for a small mass, so each bin uses the smaller of its two tails.
    return torch.where(below[1:] < 0.5, below.diff(), -above.diff())


def position_masses(
    schedule: NoiseSchedule, shift: float, below: Callable[[Tensor], Tensor], above: Callable[[Tensor], Tensor]
) -> Tensor:
    """Masses of s' = S s/(1 + (S - 1) s) in the bins of a schedule, s in [0, 1] being distributed as given: (T,).

    S is SD3's resolution shift (Esser et al. 2024, equation 23): logit s' = logit s + ln S, and on rectified flow
    SNR' = SNR/S^2. P(s' <= x) = P(s <= x/(x + S (1 - x))).

    Args:
        schedule: gives the path's parameter at its T timesteps.
        shift: S > 0.
        below: P(s <= x), (n,) in [0, 1] -> (n,).
        above: P(s >= 1 - r) as a function of r = 1 - x, which keeps the digits of small r.
    """
    edge = halfway(schedule.position)
    total = edge + shift * (1 - edge)
    return open_masses(below(edge / total), above(shift * (1 - edge) / total))


def check_shift(shift: float) -> float:
    """`shift` if it is a number > 0, else ValueError."""
    return check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none, 3.0 as SD3 at 1024 x 1024 pixels")
