"""Gaussian paths by name: x_t = alpha x_0 + sigma eps that do not preserve the variance.

T timesteps stand at the midpoints u_k = (k + 1/2)/T of T equal bins, so that neither end, where the SNR is infinite or
0, is a timestep: at T = 1000 the SNR of the linear path runs from 4e6 to 2.5e-7. A solver's last step leads from the
first midpoint to the data.

What the grid costs: the mean of a smooth function of u over the midpoints differs from its integral by O(1/T^2). For
the best velocity loss of Gaussian data of variance 1/4 on the linear path it is 1.3e-7 of the integral at T = 1000 and
1.3e-5 at T = 100 (tests/diffusion/test_paths.py), so drawing within a bin would gain nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.path import GaussianPath
from diffusion_lab.diffusion.schedule import midpoints
from diffusion_lab.diffusion.schedules import MAX_TIMESTEPS


def rectified_flow(num_timesteps: int = 1000, shift: float = 1.0) -> GaussianPath:
    """The straight line alpha = 1 - s, sigma = s (Lipman et al. 2023; Liu et al. 2023), with s = 0 at the data.

        s_k = shift u_k / (1 + (shift - 1) u_k),   u_k = (k + 1/2)/T

    The shift of Esser et al. 2024 (SD3, equation 23) divides the SNR by shift^2 at each u: sqrt(m/n) for images of m
    pixels where n pixels had none; 3 in SD3 at 1024 x 1024. d x_t/ds = eps - x_0 whatever the shift.

    Differs from SiT (Ma et al. 2024): its time runs from noise to data, t = 1 - s, and its velocity is x_0 - eps.

    Use: flow matching, as in SiT, SD3 and Flux, with prediction=velocity; `shift` 3 for latents of 1024-pixel
    images.

    Args:
        num_timesteps: T.
        shift: > 0; 1 for none, more for noisier timesteps.
    """
    u = _grid(num_timesteps)
    check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none or 3.0 as SD3 at 1024 pixels")
    s = shift * u / (1 + (shift - 1) * u)
    # 1 - s without cancellation; it is what the SNR at the noisy end depends on.
    return GaussianPath((1 - u) / (1 + (shift - 1) * u), s, s, (-torch.ones_like(s), torch.ones_like(s)))


def edm(num_timesteps: int = 1000, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0) -> GaussianPath:
    """alpha = 1 and sigma from sigma_min to sigma_max (Karras et al. 2022, EDM, equation 5):

        sigma_k = (sigma_min^(1/rho) + u_k (sigma_max^(1/rho) - sigma_min^(1/rho)))^rho,   u_k = (k + 1/2)/T

    Its velocity is d x_t/d sigma = eps; its position is u_k.

    Use: EDM's training with preconditioning=edm, prediction=edm and solver=heun (`method=edm` sets all of them).

    Args:
        num_timesteps: T.
        sigma_min: lowest noise level in units of the images, > 0.
        sigma_max: highest noise level.
        rho: >= 1, how much denser the levels are at low noise; the larger, the closer to even steps of ln sigma.
    """
    u = _grid(num_timesteps)
    check_number("sigma_max", sigma_max, "()", 0, math.inf, "use 80.0 for the published setting")
    check_number("sigma_min", sigma_min, "()", 0, sigma_max, "it must be below sigma_max, 0.002 in the paper")
    check_number("rho", rho, "[)", 1, math.inf, "use 7.0 for the published setting")
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    sigma = (low + u * (high - low)) ** rho
    return GaussianPath(torch.ones_like(sigma), sigma, u, (torch.zeros_like(sigma), torch.ones_like(sigma)))


def _grid(num_timesteps: int) -> Tensor:
    check_integer("num_timesteps", num_timesteps, 1, "use 1000", maximum=MAX_TIMESTEPS)
    return midpoints(num_timesteps)
