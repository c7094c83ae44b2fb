"""The parts of the learned Beta sampler: its draws, the pairs that it probes, the rewards of its policy, its timesteps.

Pairs of an image and a timestep are probed before and after an update:

    queue    the first image of the global batch, at every timestep of a grid of P points
    reward   every r-th row of the global batch, at each of the |S| selected timesteps

A pair is known by its number among the P + ceil(G/r) |S| pairs of the global batch, which decides its noise (those of
the queue may share one); so what is measured does not depend on how processes and microbatches share the pairs.

R_i, i in {0..n-1}, is the measured reward of the i-th rewarded row of the global batch, and R'_i the one that the
policy's update uses:

    phi <- Adam step on  -(mean_i R'_i log pi(u_i | x0_i) + c_H mean_i H(Beta(a_i, b_i)))

    measured   R'_i = R_i, without a part
    shuffled   R'_i = R_pi(i), pi a permutation without a fixed point
    zero       R'_i = 0

The last two are controls. Everything else is equal: a control draws with the same random numbers, probes as often and
costs as much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.distributed import broadcast_, rank, sum_, world_size
from diffusion_lab.timesteps.context import Context
from diffusion_lab.timesteps.grid import interpolated

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
    # In logarithms: with a, b << 1 both Gamma variables may underflow. A CPU computes the sigmoids of the last n mod 16
    # numbers one by one and rounds some differently, so they are made a multiple.
    logit = torch.nn.functional.pad(x - y, (0, -len(a) % 16))
    return torch.sigmoid(logit)[: len(a)].clamp(EDGE, 1 - EDGE)


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


class ProbePairs(NamedTuple):
    """N pairs of an image and a timestep."""

    x0: Tensor  # (N,C,H,W), the image of each pair
    cond: dict[str, Tensor]  # (N,...)
    t: Tensor  # (N,) timesteps
    index: Tensor  # (N,) number of the pair among those of the global batch


class Probed(NamedTuple):
    """The probed pairs of one microbatch, their losses before the update, and what is rewarded."""

    pairs: ProbePairs  # those of the queue first
    total: int  # pairs of the global batch
    before: Tensor  # (N,) losses at theta_k
    rewarded: Tensor  # (M,C,H,W) images whose actions are rewarded; their pairs are the last M |S|
    u: Tensor  # (M,) their actions


def queue_pairs(x0: Tensor, cond: dict[str, Tensor], grid: Tensor) -> ProbePairs:
    """The first image of the global batch, which is rank 0's, at this process's share of the grid's timesteps."""
    share = torch.arange(rank(), len(grid), world_size(), device=x0.device)

    def first(rows: Tensor) -> Tensor:
        return broadcast_(rows[:1].clone()).expand(len(share), *rows.shape[1:])

    return ProbePairs(first(x0), {key: first(value) for key, value in cond.items()}, grid[share], share)


def reward_pairs(
    x0: Tensor, cond: dict[str, Tensor], rows: Tensor, number: Tensor, selected: Tensor, first: int
) -> ProbePairs:
    """Some rows at all selected timesteps, row by row.

    Args:
        x0: (b,C,H,W) this process's and microbatch's images.
        cond: conditioning (b,...).
        rows: (M,) indices of the selected images.
        number: (M,) their numbers among the rewarded rows of the global batch.
        selected: (|S|,) timesteps.
        first: number of the first pair, after those of the queue.
    """
    size = len(selected)
    row = rows.repeat_interleave(size)
    column = torch.arange(size, device=x0.device).repeat(len(rows))
    index = first + number.repeat_interleave(size) * size + column
    return ProbePairs(x0[row], {key: value[row] for key, value in cond.items()}, selected[column], index)


class Rewards(ABC):
    """The rewards of a policy update from the measured ones; a pure function."""

    minimum = 1  # rewarded rows of a batch

    @abstractmethod
    def __call__(self, measured: Tensor, context: Context) -> Tensor:
        """R' of R: (n,) float64, equal on all processes -> (n,)."""

    def of_rows(self, measured: Tensor, number: Tensor, rows: int, context: Context) -> Tensor:
        """R' of this process's M rows, from those of the whole batch; every process must call it.

        Args:
            measured: (M,) float64, the R of these rows.
            number: (M,) int64, their numbers in {0..n-1}.
            rows: n.
            context: of the update.
        """
        whole = sum_(measured.new_zeros(rows).index_copy_(0, number, measured))
        return self(whole, context)[number]


class ShuffledRewards(Rewards):
    """R'_i = R_pi(i): a batch has the rewards that were measured, each on another row.

    pi is a random cycle through all n rows, a function of the run's seed and the step. With a plain permutation a row
    would keep its own reward with probability 1/n, and with it 1/n of the policy's gradient.
    """

    minimum = 2

    def __call__(self, measured: Tensor, context: Context) -> Tensor:
        cycle = torch.randperm(len(measured), generator=context.generator_of("rewards"), device=measured.device)
        return torch.empty_like(measured).index_copy_(0, cycle, measured[cycle.roll(1)])


class ZeroRewards(Rewards):
    """R'_i = 0: the entropy bonus alone updates the policy.

    With `entropy_mode=additive` the update is gradient ascent on mean_i H(Beta(a_i, b_i)), which has its maximum, 0, at
    the uniform distribution a = b = 1, and depends on no draw and on no loss. With `released` the entropy stays inside
    the reward, R'_i = c_H H_i without detaching it. The expected gradient of the update's loss is then

        -c_H E_u[log pi(u) grad H + H grad log pi(u)] = c_H grad (H^2/2)

    so that it also moves towards the uniform distribution, with a force that vanishes there, and keeps the noise of the
    draws.
    """

    def __call__(self, measured: Tensor, context: Context) -> Tensor:
        return torch.zeros_like(measured)


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
