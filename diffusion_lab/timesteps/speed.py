"""SpeeD's sampler: fewer timesteps where the noise level changes little, and dual timesteps in pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.timesteps.base import Draw, FixedSampler, invert
from diffusion_lab.timesteps.context import Context


class SpeeD(FixedSampler):
    """Timesteps where the noise level changes slowly are drawn less often (Wang et al. 2024, SpeeD), and half of the
    rows are duals of the others, as only in the released code (speed/diffusion/iddpm/speed.py), not in the paper.

    With g_t = d sqrt(1 - A_t)/dt by central differences and the threshold h = 1e-4 * 1000/T,

        tau  = 1 + min{t : g_t < h}                     the "meaningful steps": 642 linear, 829 quadratic, 959 cosine
        q_t ~ 2.5 where g_t > h, 0.5 where g_t < h      (tanh(1e6 (g_t - h) 1000/T) + 1.5; 5 : 1)
        dual(t) = tau - t for t < tau,  t - tau otherwise

    Row i < G/2 of the global batch draws t_i from q; row i + G/2 takes dual(t_i); of an odd batch one row is left over,
    which takes its dual with probability 1/2. The marginal of a batch is

        p_t = (q_t + sum_{s: dual(s) = t} q_s)/2,

    so duals double the suppression: about 10 : 1 for the linear schedule. Without `dual`, p = q. The loss carries
    weight 1 unless `reweight`; the weighting that belongs to SpeeD is P2 with k = gamma = 1, chosen separately.

    Differs from the released code: the threshold is scaled with T, because g is a slope per timestep; the search for
    tau starts at the steepest point of the schedule, because on a schedule whose slope is below h at t = 0 it would
    otherwise return tau = 1; and half of the rows are duals where it has n//2 + 1 draws of n, because the marginal
    would otherwise depend on the batch. Differs from the paper, which has no duals but weights by the change of the
    process: see P2.

    Use: on the linear schedule and others with a long flat end at high noise. On linear it gained most of all samplers
    in `experiment=schedule_by_sampler`, averaged over the predictions; on cosine it made no clear difference.

    Args:
        schedule: noise schedule with T >= 2 timesteps.
        dual: whether half of the rows are duals of the other half.
        suppression: ratio of q between the two regions, >= 1.
        threshold: slope of sqrt(1 - A_t) per timestep at T = 1000 below which a timestep is suppressed, > 0.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: an argument outside its range.
    """

    _draw_cdf: Tensor

    def __init__(
        self,
        schedule: NoiseSchedule,
        dual: bool = True,
        suppression: float = 5.0,
        threshold: float = 1e-4,
        reweight: bool = False,
    ) -> None:
        check_flag("dual", dual, "use true as released")
        check_number("suppression", suppression, "[)", 1, math.inf, "use 5.0 as released")
        check_number("threshold", threshold, "()", 0, math.inf, "use 1.0e-4 as released")
        check_integer("num_timesteps", schedule.num_timesteps, 2, "a slope needs two points")
        scale = 1000.0 / schedule.num_timesteps
        slope = torch.gradient((1 - schedule.alphas_cumprod).sqrt())[0] / scale  # per timestep of T = 1000
        tau = meaningful_steps(slope, threshold)
        # 1 in the suppressed region, `suppression` elsewhere, with the released code's soft step between them.
        step = 0.5 * (1 + torch.tanh(1e6 * (slope - threshold)))
        q = 1 + (suppression - 1) * step
        q = q / q.sum()
        p = 0.5 * (q + q.new_zeros(len(q)).index_add_(0, dual_of(torch.arange(len(q)), tau), q)) if dual else q
        super().__init__(p, reweight)
        self.dual, self.meaningful_steps = dual, tau
        if self.dual and type(self).quantile is not FixedSampler.quantile and type(self).draw is SpeeD.draw:
            raise ValueError(
                f"dual=True must be false for {type(self).__name__}, whose quantile a pair is drawn without"
            )
        self.register_buffer("_draw_cdf", q.cumsum(0), persistent=False)

    def draw(self, x0: Tensor, context: Context) -> Draw:
        if not self.dual:
            return super().draw(x0, context)
        n = len(x0)
        size, mine = context.global_rows(n), context.rows(n)
        half = (size + 1) // 2
        row = torch.arange(size, device=context.device)[mine]
        # The second half uses the random number of its partner, so no row needs the timestep of another.
        t = invert(self._draw_cdf, context.global_uniform(n)[row % half])
        dual = row >= half
        if size % 2:
            dual |= (row == half - 1) & (context.global_uniform(n)[0] < 0.5)
        t = torch.where(dual, dual_of(t, self.meaningful_steps), t)
        return Draw(t, self.weight(t, context.step))


def meaningful_steps(slope: Tensor, threshold: float) -> int:
    """tau: 1 + the first timestep after the steepest one whose slope is below the threshold; T-1 if there is none.

    (T,) -> [1, T-1], so that dual(0) = tau is a timestep.
    """
    start = int(slope.argmax())
    below = torch.nonzero(slope[start:] < threshold).flatten()
    tau = start + int(below[0]) + 1 if len(below) else len(slope)
    return min(tau, len(slope) - 1)


def dual_of(t: Tensor, tau: int) -> Tensor:
    """tau - t below tau, t - tau from there on."""
    return (tau - t).abs()
