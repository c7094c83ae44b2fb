"""A sampler mixed with the uniform distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.timesteps.base import TimestepSampler, check_drawn_by_quantile
from diffusion_lab.timesteps.context import Context, StepRecord


class Mixture(TimestepSampler):
    """p_t = q/T + (1 - q) b_t with b the base's distribution: every p_t >= q/T, so 1/(T p_t) <= 1/q.

    A draw takes one uniform number u: below q it is stretched over the uniform distribution, above over the base's.

    Use: around a sampler that leaves timesteps out, so that each is still trained.

    Args:
        base: a sampler that draws by its inverse CDF; `reweight` of the base is not used.
        uniform: q in [0, 1], share of the uniform distribution.
        reweight: whether the loss carries 1/(T p_t), p the mixed distribution.

    Raises:
        ValueError: the base has a `draw` of its own, or q lies outside [0, 1].
    """

    def __init__(self, base: TimestepSampler, uniform: float = 0.1, reweight: bool = False) -> None:
        check_drawn_by_quantile(base)
        check_number("uniform", uniform, "[]", 0, 1, "use 0.1 as the share of the uniform distribution")
        super().__init__(base.num_timesteps, reweight)
        if reweight and uniform == 0.0 and bool((base.probabilities(0) == 0).any()):
            raise ValueError(
                "uniform=0.0 must be > 0 with reweight=true, which divides by probabilities that the base has as 0; "
                "use 0.1"
            )
        self.base, self.uniform = base, uniform

    def setup(self, image_shape: tuple[int, ...]) -> None:
        self.base.setup(image_shape)

    def check(self, batch_size: int) -> None:
        self.base.check(batch_size)

    def probabilities(self, step: int) -> Tensor:
        return self.uniform / self.num_timesteps + (1 - self.uniform) * self.base.probabilities(step)

    def quantile(self, u: Tensor, step: int) -> Tensor:
        below_one = 1 - 2**-53
        flat = (u / max(self.uniform, 1e-300)).clamp(max=below_one)
        rest = ((u - self.uniform) / max(1 - self.uniform, 1e-300)).clamp(0, below_one)
        based = self.base.quantile(rest, step)
        return torch.where(u < self.uniform, (flat * self.num_timesteps).long(), based)

    def observe(self, record: StepRecord, context: Context) -> None:
        self.base.observe(record, context)
