"""The variance V_t of the reverse step p(x_{t-1} | x_t) = N(mean, V_t), between Vp_t and b_t; the bound's terms.

The learned one needs a loss: the bound's term L_t (bits/dim) of the hybrid loss L_simple + w L_t, in which the mean
is held constant (Nichol & Dhariwal 2021, section 3.1). The variational bound needs likelihoods of Gaussians in two
forms, in nats per dimension: `posterior_kl` and `discretized_log_likelihood`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule, extract, working_dtype


def posterior_kl(x0: Tensor, x0_hat: Tensor, log_variance: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """KL(q(x_{t-1}|x_t,x_0) || N(mean, V_t)) with mean = C1 x0_hat + C2 x_t, elementwise:

        1/2 (ln V - ln Vp - 1 + Vp/V + C1^2 (x0 - x0_hat)^2 / V)

    Differs from improved-diffusion: it subtracts two means that agree in their first digits; here their common part
    C2 x_t is left out, which keeps float32's precision at large t, where C1 is a few thousandths.

    Args:
        x0: (B,C,H,W).
        x0_hat: (B,C,H,W) the model's estimate.
        log_variance: ln V_t, broadcastable to (B,C,H,W).
        t: (B,).
        schedule: gives C1 and ln Vp (clipped at t = 0).
    """
    dtype = working_dtype(x0)
    coef1 = extract(schedule.posterior_mean_coef1, t, x0.ndim, dtype)
    log_ratio = extract(schedule.posterior_log_variance_clipped, t, x0.ndim, dtype) - log_variance
    error = (coef1 * (x0 - x0_hat)).square()
    return 0.5 * (torch.expm1(log_ratio) - log_ratio + error * torch.exp(-log_variance))


def discretized_log_likelihood(x0: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """ln P(x0) of one of 256 levels -1, -1 + 2/255, ..., 1 under a Gaussian (Ho et al. 2020, equation 13):

        P(x) = F((x + 1/255 - mean)/s) - F((x - 1/255 - mean)/s),   s^2 = V

    with the lowest and the highest level reaching to infinity and P >= 1e-12. F is the tanh approximation of the
    normal distribution function that the published numbers were computed with:

        F(z) = 1/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))

    Args:
        x0: (B,C,H,W) in [-1, 1] on the 256 levels.
        mean: (B,C,H,W).
        log_variance: ln V, broadcastable to (B,C,H,W).
    """
    inverse_std = torch.exp(-0.5 * log_variance)
    upper = _normal_cdf((x0 - mean + 1 / 255) * inverse_std)
    lower = _normal_cdf((x0 - mean - 1 / 255) * inverse_std)
    upper = upper.masked_fill(x0 > 0.999, 1.0)
    lower = lower.masked_fill(x0 < -0.999, 0.0)
    return (upper - lower).clamp(min=1e-12).log()


def bound_term(x0: Tensor, x0_hat: Tensor, log_variance: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """L_t of the variational bound in bits/dim (B,): the KL for t >= 1, the discretised decoder at t = 0.

    Arguments as in `posterior_kl`. At t = 0 the mean is x0_hat itself (C1 = 1, C2 = 0). Both forms are computed for
    all rows, because picking rows would wait for the device.
    """
    kl = posterior_kl(x0, x0_hat, log_variance, t, schedule).flatten(1).mean(1)
    decoder = -discretized_log_likelihood(x0, x0_hat, log_variance).flatten(1).mean(1)
    return torch.where(t == 0, decoder, kl) / math.log(2)


def _normal_cdf(z: Tensor) -> Tensor:
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


class Variance(ABC):
    """A rule for ln V_t; stateless. The network emits C*channels more channels when the variance is learned."""

    channels: int = 0

    @abstractmethod
    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        """ln V_t, ready to broadcast against (B,C,H,W).

        Args:
            out: (B,C*channels,H,W) the network's extra channels; (B,0,H,W) when there are none. float64 gives float64.
            t: (B,) indices into `schedule`.
            schedule: the schedule that is walked back, which may be a respaced one.
        """

    def loss_weight(self, schedule: NoiseSchedule) -> float:
        """Weight w of the bound's term in the training loss; 0 when nothing is learned."""
        return 0.0


class FixedSmall(Variance):
    """V_t = Vp_t, the posterior's variance, which is exact for data that are a single point; Vp_1 replaces Vp_0 = 0."""

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        return extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))


class FixedLarge(Variance):
    """V_t = b_t n_{t-1}^2/n_t^2, exact for unit Gaussian data, with n_t^2 = alpha_t^2 + sigma_t^2; V_0 = Vp_1. On a
    schedule that preserves the variance it is b_t (Ho et al. 2020, section 3.2).

    Differs from ddpm-torch: only its logarithm is replaced at t = 0, its variance keeps b_0, which no sampler reads.
    """

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        large = extract(schedule.log_variance_large, t, out.ndim, working_dtype(out))
        small = extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))
        return torch.where(t.reshape(large.shape) == 0, small, large)


class LearnedRange(Variance):
    """ln V_t = f ln b_t + (1-f) ln Vp_t, f = (out + 1)/2, one f per pixel and channel (Nichol & Dhariwal, eq. 15); on
    paths that do not preserve the variance, the variance of `FixedLarge` in place of b_t.

    f is not clipped: the network may leave the range.

    Two conventions for the weight w of L_t (bits/dim, one term) beside L_simple are in use:

        T/1000   improved-diffusion's default, 0.001 L_vlb of the paper with L_vlb = T E_t[L_t]
        1        guided-diffusion, DiT: the same only at T = 1000

    Args:
        vlb_weight: w >= 0, weight of L_t in bits/dim; None for T/1000 as in improved-diffusion, 1 as in
            guided-diffusion and DiT.
    """

    channels = 1

    def __init__(self, vlb_weight: float | None = None) -> None:
        if vlb_weight is not None:
            check_number("vlb_weight", vlb_weight, "[)", 0, math.inf, "use null for T/1000 or 1.0 as ADM does")
        self.vlb_weight = vlb_weight

    def log_variance(self, out: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        fraction = (out + 1) / 2
        large = extract(schedule.log_variance_large, t, out.ndim, working_dtype(out))
        small = extract(schedule.posterior_log_variance_clipped, t, out.ndim, working_dtype(out))
        return fraction * large + (1 - fraction) * small

    def loss_weight(self, schedule: NoiseSchedule) -> float:
        return schedule.num_timesteps / 1000 if self.vlb_weight is None else self.vlb_weight
