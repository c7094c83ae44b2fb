"""Predictions of what people train today: the velocity of a path, and EDM's F."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion.prediction import Estimate, Prediction
from diffusion_lab.diffusion.schedule import NoiseSchedule


class Velocity(Prediction):
    """u = d x_t/ds = a x0 + b eps, with a = d alpha_t/ds and b = d sigma_t/ds of the path that is used.

    On rectified flow a = -1, b = 1, so u = eps - x0 (Lipman et al. 2023, "Flow matching"; Liu et al. 2023). With
    x = alpha x0 + sigma eps and d = alpha b - sigma a, which is positive wherever the SNR falls,

        x0 = (b x - sigma u)/d,   eps = (alpha u - a x)/d,   E_u = (sqrt(SNR) b - a)^2 E_x0

    Both conversions are regular at every t of rectified flow, where d is alpha + sigma.

    Differs from SiT (Ma et al. 2024): its time runs from noise to data, so that its velocity is x0 - eps.

    Use: rectified flow; on a variance-preserving path v is the better-known choice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slopes: tuple[Tensor, Tensor] | None = None  # (B,) each

    def at(self, schedule: NoiseSchedule, t: Tensor) -> Velocity:
        made = Velocity()
        made._slopes = schedule.signal_slope[t], schedule.noise_slope[t]
        return made

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        a, b = self._of_images(x0)
        return a * x0 + b * eps

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        a, b = self._of_images(x_t)
        d = alpha * b - sigma * a
        return Estimate((b * x_t - sigma * out) / d, (alpha * out - a * x_t) / d)

    def native_scale(self, snr: Tensor) -> Tensor:
        a, b = (-1.0, 1.0) if self._slopes is None else (slope.to(snr) for slope in self._slopes)
        return (snr.sqrt() * b - a).square()

    def _of_images(self, like: Tensor) -> tuple[Tensor | float, Tensor | float]:
        if self._slopes is None:
            return -1.0, 1.0
        a, b = (slope.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1)) for slope in self._slopes)
        return a, b


class EDMPrediction(Prediction):
    """F of x0 = c_skip x' + c_out F with x' = x0 + s eps, s = sigma/alpha (Karras et al. 2022, EDM, equation 7):

        c_skip = d^2/(s^2 + d^2),   c_out = s d/sqrt(s^2 + d^2),   d = sigma_data

    In terms of x = alpha x0 + sigma eps, with r = sqrt(sigma^2 + alpha^2 d^2),

        F = (sigma x0 - alpha d^2 eps)/(d r),   x0 = (alpha d x + sigma r F) d/r^2,   eps = (sigma x - alpha d r F)/r^2

    and E_F = E_x0/c_out^2 = (SNR + 1/d^2) E_x0, so that weighting=unit is EDM's weighting. F is -V for d = 1. It has
    variance 1 where the images have the variance d^2. What the network is shown, c_in x', is `EDMScale`; its time is
    `LogNoise`.

    Use: schedule=edm; on other paths with preconditioning=edm.

    Args:
        sigma_data: standard deviation of the images, > 0.
    """

    def __init__(self, sigma_data: float = 0.5) -> None:
        super().__init__()
        self.sigma_data = check_number("sigma_data", sigma_data, "()", 0, math.inf, "use 0.5 for the published setting")

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        d = self.sigma_data
        return (sigma * x0 - alpha * d**2 * eps) / (d * self._r(alpha, sigma))

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        d, r = self.sigma_data, self._r(alpha, sigma)
        x0 = (alpha * d * x_t + sigma * r * out) * d / r**2
        return Estimate(x0, (sigma * x_t - alpha * d * r * out) / r**2)

    def native_scale(self, snr: Tensor) -> Tensor:
        return snr + self.sigma_data**-2

    def _r(self, alpha: Tensor, sigma: Tensor) -> Tensor:
        return torch.sqrt(sigma.square() + (alpha * self.sigma_data).square())
