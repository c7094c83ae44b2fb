"""Likelihoods of Gaussians, in the two forms in which the variational bound needs them. In nats per dimension."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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
