"""Timesteps in proportion to the variance of their gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice, check_integer, check_number
from diffusion_lab.timesteps.base import TimestepSampler, invert
from diffusion_lab.timesteps.context import Context, StepRecord
from diffusion_lab.timesteps.grid import interpolated

FORMS = ("variance", "root_second_moment")
GROUPS = 4  # of images, whose estimates are averaged: their scatter is the standard error


class GradientVariance(TimestepSampler):
    """p_t from the gradients g_i of single images at timestep t, measured at intervals.

        variance             p_t ~ V_t = (1/(n-1)) sum_i |g_i - mean g|^2                 (Kim et al. 2025, Table 4)
        root_second_moment   p_t ~ sqrt((1/n) sum_i |g_i|^2)

    then p = (1 - u) p + u/T. The first is the paper's heuristic, which changes the objective. The second, with
    `reweight`, is the distribution that minimises the variance of the unbiased estimate; the gradients are those of the
    native loss, so this holds for `weighting=unit`.

    The moments are measured at K = `points` timesteps that are denser at low noise, where the curve is steep,

        t_j = max(j, round((T-1) (j/(K-1))^2)),   j = 0..K-1,

    with the first `images` rows of the update's global batch, in 4 groups of n with separate noise: the estimate is the
    mean over the groups, its standard error their standard deviation over sqrt(4). Between points it is linear in t. A
    measurement has weight 1 - `momentum` in the running mean; one that is not finite, as from an overflow in half
    precision, is ignored. It takes points * images backward passes of one image, divided among the processes.

    Measurements follow `first`, 2 `first`, 4 `first`, .. updates below `every`, and every multiple of `every`:
    gradients change fastest at the beginning, so no distribution is older than half of the updates so far. The first
    `first` updates draw uniformly, because the gradients of an untrained network do not resemble those of a trained
    one.

    The log has `sampler/measurements`, their number, and from the first one on `sampler/relative_error`, the root mean
    square over the points of the relative standard error of the running mean. It includes the sampling of images and
    noise, not the change of the gradients since the measurement.

    Differs from Kim et al.: the estimator, its smoothing and its refresh are not stated there; the grid, the running
    mean and the share of the uniform distribution are ours.

    Use: to repeat the comparison of Kim et al. The gradient of a single image costs a backward pass of its own, so
    this sampler is not meant for long runs.

    Args:
        num_timesteps: T, the number of timesteps.
        every: largest number of optimizer steps between two measurements, >= 1.
        points: number of timesteps that are measured, denser at low noise, >= 2; at most T are used.
        images: images at each of them, >= 8 and at most those of an update.
        form: variance or root_second_moment, see above.
        momentum: weight of the earlier measurements, in [0, 1).
        uniform: u in [0, 1], share of the uniform distribution; above 0 with `reweight`.
        reweight: whether the loss is weighted with 1/(T p_t).
        first: optimizer steps before the first measurement, >= 1, if less than `every`.

    Raises:
        ValueError: an argument outside its range, or u = 0 with `reweight`.
    """

    uses_probe = True
    moment: Tensor
    squared_error: Tensor
    measured: Tensor
    _grid: Tensor
    _cdf: Tensor

    def __init__(
        self,
        num_timesteps: int,
        every: int = 500,
        points: int = 20,
        images: int = 32,
        form: str = "variance",
        momentum: float = 0.5,
        uniform: float = 0.01,
        reweight: bool = False,
        first: int = 100,
    ) -> None:
        super().__init__(num_timesteps, reweight)
        self.every = check_integer("every", every, 1, "use 500, the default")
        check_integer("points", points, 2, "use 20, the default")
        self.images = check_integer("images", images, 2 * GROUPS, "use 32, and as many rows in a batch")
        self.form = check_choice("form", form, FORMS, "use variance for the published one")
        self.momentum = check_number("momentum", momentum, "[)", 0, 1, "use 0.5")
        cure = "use 0.01, because reweight=true divides by the probability" if reweight else "use 0.01"
        self.uniform = check_number("uniform", uniform, "(]" if reweight else "[]", 0, 1, cure)
        self.first = check_integer("first", first, 1, "use 100, the default")
        self.register_buffer("_grid", squares(num_timesteps, min(points, num_timesteps)), persistent=False)
        self.register_buffer("moment", torch.zeros(len(self._grid), dtype=torch.float64))
        self.register_buffer("squared_error", torch.zeros_like(self.moment))
        self.register_buffer("measured", torch.zeros((), dtype=torch.int64))
        # The CDF is state, so that the cost of a draw does not depend on T.
        self.register_buffer("_cdf", torch.arange(1, num_timesteps + 1, dtype=torch.float64) / num_timesteps)

    def check(self, batch_size: int) -> None:
        cure = "use 32, and as many rows in a batch"
        check_integer("images", self.images, 2 * GROUPS, cure, maximum=batch_size)

    def probe_rows(self, steps: int, batch_size: int) -> int:
        return sum(map(self.due, range(1, steps + 1))) * 3 * len(self._grid) * self.images

    def due(self, updates: int) -> bool:
        """Whether it measures after this number of updates."""
        doubled, rest = divmod(updates, self.first)
        early = updates < self.every and rest == 0 and doubled & (doubled - 1) == 0
        return early or updates % self.every == 0

    def log_values(self) -> dict[str, Tensor]:
        values = {"measurements": self.measured}
        if int(self.measured):
            # A point with zero gradients has no relative error, and no weight in the distribution.
            share = self.squared_error / self.moment.square()
            values["relative_error"] = share[self.moment > 0].mean().sqrt()
        return values

    def probabilities(self, step: int) -> Tensor:
        return self._cdf.diff(prepend=self._cdf.new_zeros(1))

    def quantile(self, u: Tensor, step: int) -> Tensor:
        return invert(self._cdf, u)

    def weight(self, t: Tensor, step: int) -> Tensor:
        if not self.reweight:
            return torch.ones(len(t), device=t.device)
        p = self._cdf[t] - torch.where(t > 0, self._cdf[(t - 1).clamp(min=0)], 0.0)
        return (1.0 / (self.num_timesteps * p)).float()

    def observe(self, record: StepRecord, context: Context) -> None:
        if not self.due(context.step + 1):
            return
        x0 = record.gather(record.x0)[: self.images]
        cond = {key: record.gather(value)[: self.images] for key, value in record.cond.items()}
        found = []
        for group, rows in enumerate(torch.arange(len(x0), device=x0.device).tensor_split(GROUPS)):
            here = {key: value[rows] for key, value in cond.items()}
            seed = GROUPS * context.step + group
            variance, second = context.probe_for(self).grad_moments(x0[rows], self._grid, seed=seed, **here)
            found.append(variance if self.form == "variance" else second.sqrt())
        groups = torch.stack(found).double()
        if not bool(torch.isfinite(groups).all()):
            return
        keep = self.momentum if int(self.measured) else 0.0
        self.moment.mul_(keep).add_((1 - keep) * groups.mean(0))
        self.squared_error.mul_(keep**2).add_((1 - keep) ** 2 * groups.var(0) / GROUPS)
        self.measured.add_(1)
        self._cdf.copy_(self._distribution().cumsum(0))

    def _distribution(self) -> Tensor:
        """(T,) from the measured grid."""
        q = interpolated(self.moment, self._grid)
        flat = torch.full_like(q, 1.0 / self.num_timesteps)
        # If all gradients are zero, the distribution is undefined.
        follow = q / q.sum() if bool(q.sum() > 0) else flat
        return (1 - self.uniform) * follow + self.uniform * flat


def squares(total: int, count: int) -> Tensor:
    """`count` different integers from 0 to total-1, the squares of equal steps: (count,) int64."""
    j = torch.arange(count)
    return torch.maximum(j, ((total - 1) * (j.double() / max(1, count - 1)) ** 2).round().long())
