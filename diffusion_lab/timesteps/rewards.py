"""Controls of the learned Beta sampler: its policy updated with other rewards than the measured ones.

R_i, i in {0..n-1}, is the measured reward of the i-th rewarded row of the global batch, and R'_i the one that the
policy's update uses:

    phi <- Adam step on  -(mean_i R'_i log pi(u_i | x0_i) + c_H mean_i H(Beta(a_i, b_i)))

    measured   R'_i = R_i, without a part
    shuffled   R'_i = R_pi(i), pi a permutation without a fixed point
    zero       R'_i = 0

Everything else is equal: a control draws with the same random numbers, probes as often and costs as much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.distributed import sum_
from diffusion_lab.timesteps.context import Context


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
