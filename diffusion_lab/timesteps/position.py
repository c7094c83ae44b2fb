"""Timestep samplers whose distribution is given on the path's own parameter s in [0, 1], 0 at the data, 1 at the noise.

On rectified flow s is the share of the noise, tau of Esser et al. (2024, SD3). Bins as in `masses.py`. The distribution
does not depend on where the schedule has its timesteps: `schedule.shift` moves those, `shift` the distribution.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.timesteps.base import FixedSampler
from diffusion_lab.timesteps.masses import check_shift, position_masses

STEEPEST = 2 / (math.pi - 2)  # the largest scale at which s of `Mode` still rises with w
HALVINGS = 60  # of [0, 1], until an interval is below float64's resolution


class Mode(FixedSampler):
    """SD3's distribution with adjustable weight in the middle (Esser et al. 2024, equation 20), w uniform in [0, 1]:

        s = (1 + k) w - k sin^2(pi w/2),   density 1/(1 + k - (k pi/2) sin(pi w))

    k > 0 draws the middle more often, k < 0 the ends; k = 0 is uniform. Importance weights are not applied. The CDF, w
    as a function of s, has no closed form and is found by bisection.

    Differs from the paper: its w is 1 - w here, so that s rises with it.

    Use: cosine and rectified flow; in `experiment=schedule_by_sampler` it gained there with every prediction and
    lost on the linear schedule.

    Args:
        schedule: noise schedule with T timesteps.
        scale: k in [-1, 2/(pi - 2)]; 1.29 and 0.81 in the paper.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps.
        reweight: whether the loss carries 1/(T p_t).

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
    """SD3's CosMap (Esser et al. 2024, equation 21), u uniform in [0, 1]:

        s = 1 - 1/(1 + tan(pi u/2)),   density 2/(pi (1 - 2 s + 2 s^2))

    On rectified flow ln SNR then has the distribution of the cosine path cos(pi u/2) x0 + sin(pi u/2) eps under
    uniform u.

    Differs from diffusers: "cosmap" is a weight of the loss there, this density with uniform s.

    Use: rectified flow with the training effort of the cosine path.

    Args:
        schedule: noise schedule with T timesteps.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps.
        reweight: whether the loss carries 1/(T p_t).

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
    """s ~ Beta(a, b), with density s^(a-1) (1-s)^(b-1)/B(a, b); `LearnedBeta` has one that is learned for each image.

    Use: to choose the shape of p_t with two numbers, or to train with the distribution on which `learned_beta` has
    settled, without its policy.

    Args:
        schedule: noise schedule with T timesteps.
        a: > 0; the larger, the fewer draws near the data.
        b: > 0; the larger, the fewer draws near the noise.
        shift: S > 0, s' = S s/(1 + (S - 1) s); more than 1 draws noisier timesteps.
        reweight: whether the loss carries 1/(T p_t).

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
