"""Timesteps in proportion to the information about the image that is lost at their noise (Raya et al. 2026, InfoNoise).

Symbols: sigma the noise level SNR^-1/2, m(sigma) the smallest mean square error of an estimate of x0 per dimension, w
the weight of the x0-loss in the objective.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.distributed import broadcast_, sum_
from diffusion_lab.timesteps.base import TimestepSampler, check_sampler, invert
from diffusion_lab.timesteps.context import Context, StepRecord

FURTHEST = 600.0  # e^-600 is still a normal number


class InfoNoise(TimestepSampler):
    """p_t such that p_t w_t follows the rate at which information on x0 is lost as noise is added.

    The conditional entropy H(x0 | x_sigma) grows by m/sigma^3 per dimension and d sigma (I-MMSE, Guo et al. 2005), so
    per d ln sigma by m/sigma^2, the eps-loss. With a gate g against the lowest noise, where sigma^2 divides the error
    that a network still makes,

        rho = m/sigma^2 g,   g = sigma^n/(sigma^n + c^n),   p_t proportional to rho(sigma_t) D_t / w_t

    where D_t is the width in ln sigma of the bin of t. The objective then has the weights p w = rho D on the x0-losses
    under every weighting and prediction, which only change how often a noise level is drawn and how much each draw
    counts. The loss carries no 1/(T p_t), as published.

    m is the mean x0-loss of training in `bins` equal ranges of ln sigma. What is averaged is r = (1 + 1/sigma^2) m,
    since it changes little with sigma (for Gaussian data from 1 to the variance of a pixel), with Gaussian weights of
    width h, so that a timestep without a loss takes those of its neighbours:

        r(sigma) = sum_j K_j S_j / sum_j K_j N_j,   K_j = exp(-(ln sigma - ln sigma_j)^2/(2 h^2))

    S_j and N_j are the sum and the number of r in range j, multiplied by `momentum` at each change of p. m is at most
    the variance of a pixel over the batches at which p changes, the error of the mean image. p is that of `warmup`
    until step `warmup_steps`, and changes at every multiple of `every` from there on.

    c is `gate`, or with null the largest sigma_t with q >= `cutoff` max q, q = m/sigma^3, which depends on the lowest
    noise level of the schedule and is logged as `sampler/gate`.

    Differs from the paper: m is bounded by the variance, because the x0-loss of eps prediction at high noise is sigma^2
    times a small eps-loss, far above any error that an estimate needs to have. Bins, warm-up, refresh and smoothing are
    ours, and so is the fixed gate as the default, because neither the paper's settings of the former nor its code were
    available; n and both forms of c are the paper's, at second hand.

    Use: with v, velocity or EDM's F, on a schedule whose best timesteps are not known: with these predictions it was
    better than uniform on all four schedules of `experiment=schedule_by_sampler`, most on edm and linear. With eps it
    was far worse on cosine and rectified flow, which decides the mean over the predictions there, and worse on linear;
    on edm it was better, but less than `logit_normal`.

    Args:
        schedule: noise schedule with T timesteps.
        native_scale: (T,) native loss divided by x0-loss, `diffusion.native_scales`.
        x0_weight: (T,) w, `diffusion.x0_weights`.
        warmup: sampler whose distribution at step 0 is used until the first change.
        warmup_steps: optimizer steps with the distribution of `warmup`, >= 0.
        every: optimizer steps between two changes of the distribution, >= 1.
        bins: number of equal ranges of ln sigma in which the error is averaged, >= 1.
        smoothing: h > 0, width in nats over which the error is smoothed on the axis of ln sigma.
        momentum: weight of the earlier losses at each change, in [0, 1).
        gate: c >= 0, the noise level in units of the image below which little is drawn; 0 for no gate; null: the
            largest one with at least `cutoff` of the largest information per sigma.
        gate_power: n > 0, how steeply the gate closes.
        cutoff: share in (0, 1] of the largest information per sigma, used with `gate` null.

    Raises:
        ValueError: an argument outside its range, or a weight that is not positive and finite.
    """

    total: Tensor
    count: Tensor
    spread: Tensor
    _bin: Tensor
    _kernel: Tensor
    _log_sigma: Tensor
    _to_r: Tensor
    _width: Tensor
    _cdf: Tensor

    def __init__(
        self,
        schedule: NoiseSchedule,
        native_scale: Tensor,
        x0_weight: Tensor,
        warmup: TimestepSampler,
        warmup_steps: int = 1000,
        every: int = 100,
        bins: int = 64,
        smoothing: float = 0.25,
        momentum: float = 0.8,
        gate: float | None = 0.15,
        gate_power: float = 3.0,
        cutoff: float = 0.002,
    ) -> None:
        super().__init__(schedule.num_timesteps)
        self.warmup_steps = check_integer("warmup_steps", warmup_steps, 0, "use 1000 optimizer steps")
        self.every = check_integer("every", every, 1, "use 100 optimizer steps")
        check_integer("bins", bins, 1, "use 64")
        check_number("smoothing", smoothing, "()", 0, math.inf, "use 0.25 nats")
        self.momentum = check_number("momentum", momentum, "[)", 0, 1, "use 0.8")
        if gate is not None:
            check_number("gate", gate, "[)", 0, math.inf, "use 0.15 for images in [-1, 1], 0.0 for none, or null")
        self.gate = gate
        self.gate_power = check_number("gate_power", gate_power, "()", 0, math.inf, "use 3.0 for the published setting")
        self.cutoff = check_number("cutoff", cutoff, "(]", 0, 1, "use 0.002 for the published setting")
        tables = _tables(schedule, native_scale.double(), _positive(x0_weight.double()), bins, smoothing)
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)
        self.register_buffer("total", torch.zeros(bins, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(bins, dtype=torch.float64))
        # Sum of the pixels' variances of the batches, and their number
        self.register_buffer("spread", torch.zeros(2, dtype=torch.float64))
        # The CDF is state, so that the cost of a draw does not depend on T.
        check_sampler("warmup", warmup)
        self.register_buffer("_cdf", warmup.probabilities(0).double().cumsum(0))

    def probabilities(self, step: int) -> Tensor:
        return self._cdf.diff(prepend=self._cdf.new_zeros(1)) / self._cdf[-1]

    def quantile(self, u: Tensor, step: int) -> Tensor:
        return invert(self._cdf, u)

    def log_values(self) -> dict[str, Tensor]:
        return {"gate": self._gate(self._error())} if self.gate is None else {}

    def observe(self, record: StepRecord, context: Context) -> None:
        t, loss = record.gathered()
        r = loss * self._to_r[t]
        known = torch.isfinite(r)  # a loss may overflow in half precision
        self.total.index_add_(0, self._bin[t], torch.where(known, r, 0.0))
        self.count.index_add_(0, self._bin[t], known.double())
        if (context.step + 1) % self.every == 0 and context.step + 1 >= self.warmup_steps:
            self._see_images(record.x0, context)
            self._refresh()

    def _see_images(self, x0: Tensor, context: Context) -> None:
        """Add the variance of a pixel over the global batch, the mean of all pixels'; of one image there is none."""
        n = len(x0) * context.world_size
        if n > 1:
            norm = torch.linalg.vector_norm(x0, dim=0, dtype=torch.float64)
            first, second = sum_(torch.stack([x0.sum(0, dtype=torch.float64), norm.square()]))
            variance = ((second - first.square() / n) / (n - 1)).mean()
            self.spread.add_(torch.stack([variance, torch.ones_like(variance)]))

    def _refresh(self) -> None:
        # A GPU adds the rows of a bin in any order: all processes continue with the sums of rank 0.
        sums = broadcast_(torch.stack([self.total, self.count]))
        self.total.copy_(sums[0])
        self.count.copy_(sums[1])
        m = self._error()
        sigma = self._log_sigma.exp()
        # sigma^n/(sigma^n + c^n), which is 1 for c = 0
        gate = torch.sigmoid(self.gate_power * (self._log_sigma - self._gate(m).log()))
        p = m / sigma.square() * gate * self._width
        p = p / p.sum()
        # Losses that are all zero, or none, leave p as it was; decided on the device, for which the host need not wait.
        self._cdf.copy_(torch.where(torch.isfinite(p).all(), p.cumsum(0), self._cdf))
        self.total.mul_(self.momentum)
        self.count.mul_(self.momentum)
        self.spread.mul_(self.momentum)

    def _error(self) -> Tensor:
        """m at each timestep: (T,)."""
        r = (self._kernel @ self.total) / (self._kernel @ self.count).clamp(min=1e-300)
        largest = torch.where(self.spread[1] > 0, self.spread[0] / self.spread[1], torch.inf)
        return torch.minimum(r / (1 + (-2 * self._log_sigma).exp()), largest)

    def _gate(self, m: Tensor) -> Tensor:
        """c: ()."""
        if self.gate is not None:
            return torch.full_like(m[0], self.gate)
        sigma = self._log_sigma.exp()
        q = m / sigma**3
        return torch.where(q >= self.cutoff * q.max(), sigma, 0.0).max()


def _tables(schedule: NoiseSchedule, scale: Tensor, weight: Tensor, bins: int, smoothing: float) -> dict[str, Tensor]:
    """What never changes, by the name of its buffer: K of each timestep (T, bins), the others (T,)."""
    log_sigma = -0.5 * schedule.log_snr
    edges = torch.linspace(float(log_sigma[0]), float(log_sigma[-1]), bins + 1, dtype=torch.float64)
    distance = ((log_sigma[:, None] - 0.5 * (edges[1:] + edges[:-1])) / smoothing).square() / 2
    return {
        "_log_sigma": log_sigma,
        "_to_r": (1 + schedule.snr) / scale,
        "_width": _widths(log_sigma) / weight,
        "_bin": torch.searchsorted(edges[1:-1], log_sigma),
        "_kernel": torch.exp(-distance.clamp(max=FURTHEST)),
    }


def _widths(log_sigma: Tensor) -> Tensor:
    """Width in ln sigma of each timestep's bin; the outer bins reach as far out as in: (T,) -> (T,)."""
    if len(log_sigma) == 1:
        return torch.ones_like(log_sigma)
    step = log_sigma.diff()
    return 0.5 * (torch.cat([step[:1], step]) + torch.cat([step, step[-1:]]))


def _positive(weight: Tensor) -> Tensor:
    """`weight` (T,) if all are positive and finite, else a ValueError."""
    wrong = torch.nonzero(~(torch.isfinite(weight) & (weight > 0))).flatten()
    if len(wrong):
        t = int(wrong[0])
        raise ValueError(
            f"x0_weight[{t}]={weight[t]:.3g} must be positive and finite, since p is divided by it; use weighting=unit"
        )
    return weight
