"""Wrappers that spread the draws of one batch evenly and leave the law of each as it is."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.timesteps.base import Context, Draw, StepRecord, TimestepSampler


class Stratified(TimestepSampler):
    """One draw from each of G equal slices of the base's probability mass, G the rows of the global batch.

        u_i = (pi(i) + r_i) / G,   r_i uniform in [0, 1),   t_i = base's inverse CDF at u_i

    with a random permutation pi of {0..G-1} for each update, equal on all processes. Every single t_i has the base's
    law, so the expected loss and gradient stay the same while their variance falls. The slices are those of the
    global batch, whatever number of processes and microbatches it is split into.

    Differs from k-diffusion `stratified_uniform`, which gives process r the slices r, r+W, ...: a permutation needs
    no layout, so one process and many draw the same timestep for the same image.

    Args:
        base: a sampler that draws by its inverse CDF.

    Raises:
        ValueError: the base has a `draw` of its own, which slices cannot be taken of.
    """

    def __init__(self, base: TimestepSampler) -> None:
        if type(base).draw is not TimestepSampler.draw:
            raise ValueError(
                f"base={type(base).__name__} must draw by its inverse CDF; choose a sampler without a draw of its own"
            )
        super().__init__(base.num_timesteps, base.reweight)
        self.base = base

    def probabilities(self, step: int) -> Tensor:
        return self.base.probabilities(step)

    def draw(self, x0: Tensor, context: Context) -> Draw:
        n = len(x0)
        size, mine = context.global_rows(n), context.rows(n)
        slices = torch.randperm(size, generator=context.generator, device=context.device)[mine]
        t = self.base.quantile((slices + context.uniform(n)) / size, context.step)
        return Draw(t, self.base.weight(t, context.step))

    def observe(self, record: StepRecord, context: Context) -> None:
        self.base.observe(record, context)
