"""Timestep samplers that discretise a continuous distribution of the noise: p_t is its mass in the bin of timestep t.

Let a path be known at T timesteps by a number g_0 .. g_{T-1} that rises or falls with t, such as its parameter s or
ln SNR. The bin of timestep t is what lies between

    e_t = (g_{t-1} + g_t)/2   and   e_{t+1} = (g_t + g_{t+1})/2

so p_t is the probability that t is the nearest timestep. The outer bins are open, unless the distribution is truncated.

`LogSNR` is given a distribution on the axis of ln SNR. Everything that depends on the ratio of signal and noise alone
is a function of ln SNR, so that a distribution on this axis means the same on every path and every grid. With the noise
level sigma = SNR^-1/2, ln SNR = -2 ln sigma:

    ln sigma ~ N(m, d^2)                  is  Normal(location=-2 m, scale=2 d);  EDM's is 2.4, 2.4
    logit s ~ N(m, d^2), rectified flow   is  Normal(location=-2 m, scale=2 d);  SD3's is 0, 2
    the shift S of SD3                    is  -2 ln S added to the location

A distribution of one's own is a subclass of `Distribution` with `cdf`, and needs no edit here.

`Mode`, `CosMap` and `Beta` are distributions on the path's own parameter s in [0, 1], 0 at the data, 1 at the noise.
On rectified flow s is the share of the noise, tau of Esser et al. (2024, SD3). The distribution does not depend on
where the schedule has its timesteps: `schedule.shift` moves those, `shift` the distribution.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice, check_number
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.timesteps.base import FixedSampler

OUTSIDE = ("renormalize", "clamp")
STEEPEST = 2 / (math.pi - 2)  # the largest scale at which s of `Mode` still rises with w
HALVINGS = 60  # of [0, 1], until an interval is below float64's resolution


def halfway(grid: Tensor) -> Tensor:
    """The edges e_1 .. e_{T-1} between neighbours: (T,) -> (T-1,)."""
    return 0.5 * (grid[1:] + grid[:-1])


def open_masses(below: Tensor, above: Tensor) -> Tensor:
    """Masses of T bins, the outer ones open, from P(below e_j) and P(above e_j) at the inner edges: (T-1,) -> (T,)."""
    zero, one = below.new_zeros(1), below.new_ones(1)
    return masses(torch.cat([zero, below, one]), torch.cat([one, above, zero]))


def masses(below: Tensor, above: Tensor) -> Tensor:
    """Masses between n + 1 edges, from the probabilities on either side of each: (n+1,), (n+1,) -> (n,)."""
    # Near 1 a probability has no digits left for a small mass, so each bin uses the smaller of its two tails.
    return torch.where(below[1:] < 0.5, below.diff(), -above.diff())


def position_masses(
    schedule: NoiseSchedule, shift: float, below: Callable[[Tensor], Tensor], above: Callable[[Tensor], Tensor]
) -> Tensor:
    """Masses of s' = S s/(1 + (S - 1) s) in the bins of a schedule, s in [0, 1] being distributed as given: (T,).

    S is SD3's resolution shift (Esser et al. 2024, equation 23): logit s' = logit s + ln S, and on rectified flow
    SNR' = SNR/S^2. P(s' <= x) = P(s <= x/(x + S (1 - x))).

    Args:
        schedule: gives the path's parameter at its T timesteps.
        shift: S > 0.
        below: P(s <= x), (n,) in [0, 1] -> (n,).
        above: P(s >= 1 - r) as a function of r = 1 - x, which keeps the digits of small r.
    """
    edge = halfway(schedule.position)
    total = edge + shift * (1 - edge)
    return open_masses(below(edge / total), above(shift * (1 - edge) / total))


def check_shift(shift: float) -> float:
    """`shift` if it is a number > 0, else ValueError."""
    return check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none, 3.0 as SD3 at 1024 x 1024 pixels")


class Distribution(ABC):
    """A distribution of a real number x."""

    @abstractmethod
    def cdf(self, x: Tensor) -> Tensor:
        """P(X <= x): (n,) float64 -> (n,) float64."""

    def survival(self, x: Tensor) -> Tensor:
        """P(X > x): (n,) -> (n,). Override it if 1 - cdf loses the upper tail to rounding."""
        return 1 - self.cdf(x)


class Symmetric(Distribution):
    """x = location + scale z with z symmetric about 0; a subclass gives `standard_cdf`.

    Args:
        location: median of ln SNR, in nats; 0 is where signal and noise are equal.
        scale: > 0, in nats.

    Raises:
        ValueError: location is not finite, or scale <= 0.
    """

    def __init__(self, location: float = 0.0, scale: float = 1.0) -> None:
        check_number("location", location, "()", -math.inf, math.inf, "use 0.0, where signal and noise are equal")
        check_number("scale", scale, "()", 0, math.inf, "use 1.0")
        self.location, self.scale = location, scale

    @abstractmethod
    def standard_cdf(self, z: Tensor) -> Tensor:
        """P(Z <= z), with all digits for z < 0: (n,) -> (n,)."""

    def cdf(self, x: Tensor) -> Tensor:
        return self.standard_cdf((x - self.location) / self.scale)

    def survival(self, x: Tensor) -> Tensor:
        return self.standard_cdf((self.location - x) / self.scale)


class Normal(Symmetric):
    """N(location, scale^2): EDM's distribution (Karras et al. 2022) at 2.4, 2.4; SD3's logit-normal at 0, 2."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-z / math.sqrt(2))


class Laplace(Symmetric):
    """Density exp(-|z|)/(2 scale), z = (x - location)/scale (Hang et al. 2024, who use 0 and 0.5)."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        half = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, half, 1 - half)


class Cauchy(Symmetric):
    """Density 1/(pi scale (1 + z^2)), z = (x - location)/scale: heavy tails (Hang et al. 2024)."""

    def standard_cdf(self, z: Tensor) -> Tensor:
        return torch.atan2(torch.ones_like(z), -z) / math.pi


class LogSNR(FixedSampler):
    """ln SNR has a given distribution F; t is the timestep whose ln SNR, L_t, is nearest.

        p_t = F(e_t) - F(e_{t+1}),   e_t = (L_{t-1} + L_t)/2,   L falls with t

    With `outside=renormalize` the mass of F outside the schedule's range is left out, with e_0 = L_0 + (L_0 - L_1)/2
    and e_T likewise, and the rest is divided by its sum. With `clamp` it belongs to the outermost timesteps, e_0 = inf,
    e_T = -inf.

    Use: to train at the same noise levels on every schedule, so that a comparison of schedules does not compare
    training distributions as well.

    Args:
        schedule: noise schedule with T timesteps.
        distribution: F, the distribution of ln SNR.
        outside: renormalize or clamp, for the mass of F outside the schedule's range, see above.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: another word, no mass inside the schedule's range, or `reweight` with a timestep without any.
    """

    def __init__(
        self, schedule: NoiseSchedule, distribution: Distribution, outside: str = "renormalize", reweight: bool = False
    ) -> None:
        check_choice("outside", outside, OUTSIDE, "use renormalize, or clamp as EDM's wrapper of discrete models")
        grid = schedule.log_snr
        inner = halfway(grid)
        # Timesteps below t have a larger ln SNR.
        if outside == "clamp" or len(grid) == 1:
            p = open_masses(distribution.survival(inner), distribution.cdf(inner))
        else:
            edges = torch.cat([2 * grid[:1] - inner[:1], inner, 2 * grid[-1:] - inner[-1:]])
            p = masses(distribution.survival(edges), distribution.cdf(edges))
        if bool((p == 0).all()):
            raise ValueError(
                f"distribution={type(distribution).__name__} must have mass between the schedule's ln SNR of "
                f"{grid[-1]:.1f} and {grid[0]:.1f}; use a location between them, a larger scale, or outside=clamp"
            )
        super().__init__(p, reweight)
        self.distribution = distribution


class Mode(FixedSampler):
    """With w uniform in [0, 1] (SD3, Esser et al. 2024, equation 20),

        s = (1 + k) w - k sin^2(pi w/2),   density 1/(1 + k - (k pi/2) sin(pi w))

    k > 0 draws the middle more often, k < 0 the ends; k = 0 is uniform. The CDF, w as a function of s, has no closed
    form and is found by bisection.

    Differs from the paper: its w is 1 - w here, so that s rises with it.

    Use: on cosine and rectified flow, where it was better than uniform with every prediction in
    `experiment=schedule_by_sampler`, as on edm; on the linear schedule it was worse.

    Args:
        schedule: noise schedule with T timesteps.
        scale: k in [-1, 2/(pi - 2)], about 1.75: > 0 draws the middle more often, < 0 the ends; 1.29 and 0.81 in the
            paper.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps; 3 in SD3 at 1024 x 1024 pixels.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: an argument outside its range.
    """

    def __init__(
        self, schedule: NoiseSchedule, scale: float = 1.29, shift: float = 1.0, reweight: bool = False
    ) -> None:
        check_number("scale", scale, "[]", -1, STEEPEST, "use 1.29 for the published setting")
        check_shift(shift)

        def cdf(s: Tensor) -> Tensor:
            return _uniform_of_mode(s, scale)

        super().__init__(position_masses(schedule, shift, cdf, cdf), reweight)  # symmetric about 1/2
        self.scale, self.shift = scale, shift


class CosMap(FixedSampler):
    """With u uniform in [0, 1] (SD3, Esser et al. 2024, equation 21),

        s = 1 - 1/(1 + tan(pi u/2)),   density 2/(pi (1 - 2 s + 2 s^2))

    On rectified flow ln SNR then has the distribution of the cosine path cos(pi u/2) x0 + sin(pi u/2) eps under
    uniform u.

    Differs from diffusers: "cosmap" is a weight of the loss there, this density with uniform s.

    Use: with rectified flow, to train at the noise levels at which the cosine schedule trains.

    Args:
        schedule: noise schedule with T timesteps.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps; 3 in SD3 at 1024 x 1024 pixels.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: shift <= 0.
    """

    def __init__(self, schedule: NoiseSchedule, shift: float = 1.0, reweight: bool = False) -> None:
        check_shift(shift)

        def cdf(s: Tensor) -> Tensor:
            return 2 / math.pi * torch.atan2(s, 1 - s)

        super().__init__(position_masses(schedule, shift, cdf, cdf), reweight)  # symmetric about 1/2
        self.shift = shift


class Beta(FixedSampler):
    """s ~ Beta(a, b), with density s^(a-1) (1-s)^(b-1)/B(a, b); `LearnedBeta` learns one for each image.

    Use: to choose the shape of p_t with two numbers, or to train with the distribution to which `learned_beta` has
    converged, without its policy.

    Args:
        schedule: noise schedule with T timesteps.
        a: > 0; the larger, the fewer draws near the data.
        b: > 0; the larger, the fewer draws near the noise.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: an argument outside its range, or `reweight` with a probability that underflows to zero.
    """

    def __init__(
        self, schedule: NoiseSchedule, a: float = 2.0, b: float = 2.0, shift: float = 1.0, reweight: bool = False
    ) -> None:
        for name, value in (("a", a), ("b", b)):
            check_number(name, value, "()", 0, math.inf, "use 1.0 for both to draw uniformly, 2.0 to favour the middle")
        check_shift(shift)
        below, above = (lambda s: _beta_cdf(a, b, s)), (lambda r: _beta_cdf(b, a, r))
        super().__init__(position_masses(schedule, shift, below, above), reweight)
        self.a, self.b, self.shift = a, b, shift


def _uniform_of_mode(s: Tensor, scale: float) -> Tensor:
    """w in [0, 1] with (1 + k) w - k sin^2(pi w/2) = s, which rises with w: (n,) -> (n,)."""
    low, high = torch.zeros_like(s), torch.ones_like(s)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        less = (1 + scale) * middle - scale * torch.sin(0.5 * math.pi * middle).square() < s
        low, high = torch.where(less, middle, low), torch.where(less, high, middle)
    return 0.5 * (low + high)


def _beta_cdf(a: float, b: float, x: Tensor) -> Tensor:
    """The regularized incomplete beta function I_x(a, b): (n,) -> (n,)."""
    from scipy.special import betainc  # imported only if it is needed, since it takes a moment

    return torch.from_numpy(betainc(a, b, x.numpy()))
