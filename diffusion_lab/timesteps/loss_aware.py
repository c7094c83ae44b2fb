"""Timestep samplers that follow the losses that training sees."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.timesteps.base import TimestepSampler
from diffusion_lab.timesteps.context import Context, StepRecord


class LossSecondMoment(TimestepSampler):
    """p_t proportional to sqrt(E[L_t^2]), the variance-minimising importance sampler of Nichol & Dhariwal (2021).

    With the last n losses L_{t,1..n} of every timestep,

        q_t = sqrt((1/n) sum_i L_{t,i}^2),   p_t = (1 - u) q_t / sum_s q_s + u / T,

    and p_t = 1/T until every timestep has n losses. L is the weighted loss of a row, gathered from all processes.
    iDDPM section 3.3; improved-diffusion `resample.LossSecondMomentResampler`.

    Differs from improved-diffusion: the history is in the checkpoint, because without it a resumed run silently
    falls back to uniform; and it is a ring in which the newest loss replaces the oldest, which gives the same mean
    without shifting rows.

    Use: when losses differ by orders of magnitude over t and the objective is to stay the same, above all for the
    variational bound (`method=iddpm`). It draws uniformly until every timestep has been drawn
    `history_per_timestep` times, so it has no effect in short runs with many timesteps (about 23,000 images for
    T = 1000).

    Args:
        num_timesteps: T, the number of timesteps.
        history_per_timestep: n >= 1, losses kept for each timestep.
        uniform: u in [0, 1], share of the uniform distribution.
        reweight: whether the loss is weighted with 1/(T p_t), as published.

    Raises:
        ValueError: n < 1, u outside [0, 1], or u = 0 with `reweight` (a loss of zero would divide by zero).
    """

    history: Tensor
    count: Tensor
    _missing: Tensor
    _root: Tensor

    def __init__(
        self, num_timesteps: int, history_per_timestep: int = 10, uniform: float = 0.001, reweight: bool = True
    ) -> None:
        super().__init__(num_timesteps, reweight)
        check_integer("history_per_timestep", history_per_timestep, 1, "use 10 as published")
        self.uniform = check_number("uniform", uniform, "[]", 0, 1, "use 0.001 for the published setting")
        if reweight and uniform == 0.0:
            raise ValueError(
                f"uniform={uniform} must be > 0 with reweight=true, which divides by the probability; "
                "use 0.001 for the published setting"
            )
        self.register_buffer("history", torch.zeros(num_timesteps, history_per_timestep, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(num_timesteps, dtype=torch.int64))
        # What follows from them is kept up to date, so that an update does not depend on T and a draw adds up T numbers
        # once: how many timesteps have fewer than n losses, and q.
        self.register_buffer("_missing", torch.tensor(num_timesteps), persistent=False)
        self.register_buffer("_root", torch.zeros(num_timesteps, dtype=torch.float64), persistent=False)
        self.register_load_state_dict_post_hook(LossSecondMoment._loaded)

    def probabilities(self, step: int) -> Tensor:
        return self._of(self._root)

    def weight(self, t: Tensor, step: int) -> Tensor:
        if not self.reweight:
            return torch.ones(len(t), device=t.device)
        return (1.0 / (self.num_timesteps * self._of(self._root[t]))).float()

    def _of(self, q: Tensor) -> Tensor:
        """The probabilities of timesteps with these q."""
        flat, total = 1.0 / self.num_timesteps, self._root.sum()
        # All-zero losses have no shape to follow: keep 0/0 out and stay uniform.
        follow = (1.0 - self.uniform) * q / total.clamp(min=1e-300) + self.uniform * flat
        return torch.where((self._missing == 0) & (total > 0), follow, flat)

    def observe(self, record: StepRecord, context: Context) -> None:
        t, loss = record.gathered(objective=True)
        size = self.history.shape[1]
        # The k-th occurrence of a timestep within the batch goes k places further in that timestep's ring.
        order = torch.argsort(t, stable=True)
        t, loss = t[order], loss[order]
        place, first = torch.arange(len(t), device=t.device), torch.searchsorted(t, t)
        occurrence = place - first
        # Of more than n occurrences the last n stay: each row writes what the last one to the same place writes.
        later = torch.searchsorted(t, t, right=True) - place - 1
        number = self.count[t] + occurrence
        self.history[t, number % size] = loss[place + later // size * size]
        self._missing.sub_((number == size - 1).sum())
        # Not `bincount`: the size of its result depends on the largest t, for which the host waits.
        self.count.index_add_(0, t, torch.ones_like(t))
        self._root[t] = self.history[t].square().mean(dim=1).sqrt()

    def _loaded(self, *_: object) -> None:
        """Compute what follows from the loaded history."""
        self._missing.copy_((self.count < self.history.shape[1]).sum())
        self._root.copy_(self.history.square().mean(dim=1).sqrt())
