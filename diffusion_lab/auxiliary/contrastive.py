"""Contrastive flow matching: the answer for one image is driven away from the targets of others."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.auxiliary.base import Auxiliary
from diffusion_lab.diffusion.step import Step


class Contrastive(Auxiliary):
    """-|out_i - u(x0_j, eps_j, t_i)|^2/(C H W), with u the prediction's target and j another row of the batch, drawn
    uniformly (Stoica et al. 2025, "Contrastive Flow Matching", arXiv 2506.05350).

    With the weight lambda and the loss of the prediction, the best answer at x_t is

        out = (E[u | x_t] - lambda E[u_other]) / (1 - lambda)

    with E[u_other] the mean target of independent rows, 0 for centred images: the flows of different images part. It
    exists for lambda < 1 alone.

    Differs from the published code: j is of the whole batch over all processes, so that their number changes nothing;
    rows whose label was withheld take part, which is its setting without `dont_contrast_on_unconditional`; and on a
    path other than the straight one the target of row j is that at the own timestep.

    Use: with prediction=velocity, as `method=contrastive_flow` sets it; it is meant for models with labels.

    Args:
        weight: lambda, 0.05 in the paper, below 1.
        ramp: optimizer steps over which the weight rises, >= 0.
        stop: optimizer steps after which it ends, >= 1; null: it stays.

    Raises:
        ValueError: a weight of 1 or more, with which the loss has no minimum.
    """

    of_batch = True

    def __init__(self, weight: float = 0.05, ramp: int = 0, stop: int | None = None) -> None:
        super().__init__(weight, ramp, stop)
        if weight >= 1:
            raise ValueError(f"weight={weight} must be below 1, from where the loss has no minimum; use 0.05")

    def rows(self, step: Step) -> Tensor:
        x0, eps = step.gather(step.x0), step.gather(step.eps)
        own = torch.arange(len(x0), device=x0.device)[step.position.rows(len(step.x0))]
        other = (own + 1 + (step.uniform() * (len(x0) - 1)).long()) % len(x0)
        target = step.denoiser.target(x0[other], eps[other], step.t)
        return -(step.out - target).square().flatten(1).mean(1)
