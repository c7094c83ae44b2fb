"""One objective, divided in four ways between the distribution of the timesteps and their weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.timesteps import FixedSampler, LogitNormal

OBJECTIVES = ("v", "eps", "min_snr", "p2", "logit_normal")
SPLITS = ("w", "p", "optimal", "inverted")


class Split(FixedSampler):
    """Timesteps from p with weight q_t/p_t: the objective sum_t q_t L_t on the v-loss, whatever p is.

    With A = SNR/(1 + SNR), q is proportional to

        v             1
        eps           A                     weight 1 on the eps-loss
        min_snr       min(SNR, 5) (1 - A)
        p2            A (1 - A)             1/(1 + SNR) on the eps-loss
        logit_normal  the distribution of `LogitNormal(mean=0, std=1)`

    and p, with g_t the root mean square of a row's gradient,

        w             1                     all in the weights
        p             q                     all in the draws: weight 1
        optimal       q g                   least second moment of the gradient
        inverted      q / g

    The second moment is sum_t q_t^2 g_t^2 / p_t, divided by the rows of a batch for the batch's.

    Args:
        schedule: the schedule of the run.
        objective: one of `OBJECTIVES`.
        split: one of `SPLITS`.
        timesteps: (K,) increasing.
        gradients: (K,) g at them; between them ln g is linear.
    """

    def __init__(
        self, schedule: NoiseSchedule, objective: str, split: str, timesteps: Sequence[int], gradients: Sequence[float]
    ) -> None:
        check_choice("objective", objective, OBJECTIVES, "use v")
        check_choice("split", split, SPLITS, "use w")
        steps, snr = schedule.num_timesteps, schedule.snr.double()
        alpha = snr / (1 + snr)
        q = {
            "v": torch.ones_like(snr),
            "eps": alpha,
            "min_snr": snr.clamp(max=5) * (1 - alpha),
            "p2": alpha * (1 - alpha),
            "logit_normal": LogitNormal(steps).probabilities(0),
        }[objective]
        g = torch.from_numpy(np.exp(np.interp(np.arange(steps), timesteps, np.log(gradients))))
        super().__init__({"w": torch.ones_like(q), "p": q, "optimal": q * g, "inverted": q / g}[split])
        self.register_buffer("_weight", q / q.sum() / self._p, persistent=False)
        self.second_moment = float((self._p * self._weight**2 * g**2).sum())

    def weight(self, t: Tensor, step: int) -> Tensor:
        return self._weight[t].float()
