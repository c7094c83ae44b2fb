"""What the network predicts. With x = alpha x0 + sigma eps, alpha = sqrt(A_t), sigma = sqrt(1-A_t):

    v = alpha eps - sigma x0                          (Salimans & Ho 2022)
    x0  = (x - sigma eps)/alpha = alpha x - sigma v
    eps = (x - alpha x0)/sigma  = sigma x + alpha v

For one and the same answer the mean square errors in the three spaces are tied by

    E_eps = SNR E_x0,     E_v = (1 + SNR) E_x0 = E_eps + E_x0

so a weighting written on the x0-loss serves every prediction: divide by `native_scale`.

alpha and sigma are given ready to broadcast, (B,1,1,1) for images. x is the point of the variance-preserving path,
alpha^2 + sigma^2 = 1, on every schedule: `Denoiser` divides x_t of another path by sqrt(alpha_t^2 + sigma_t^2) first.
What depends on more than the SNR, as the velocity of a path and EDM's F do, asks for the schedule in `at`.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_number, check_overrides
from diffusion_lab.diffusion.schedule import NoiseSchedule


class Estimate(NamedTuple):
    """Both parts of x_t, as estimated from a network output."""

    x0: Tensor  # (B,C,H,W), not clipped
    eps: Tensor  # (B,C,H,W)


class LossParts(NamedTuple):
    """A row's native loss as a sum of K parts, and what divides each part to give its x0-loss; K = 1 with one head."""

    loss: Tensor  # (B,K)
    scale: Tensor  # (B,K) float32


class Prediction(nn.Module, ABC):
    """A space of predictions. The network emits heads*C channels for images of C channels.

    Those with one head are stateless. One with several may keep, in buffers, what it has seen of its heads' errors:
    `errors` measures them in the training step, `observe` is called once per optimizer step with those of all
    processes, and is the only place where the buffers change.
    """

    heads: int = 1

    def __init__(self) -> None:
        super().__init__()
        check_overrides(self, "loss", "parts")

    @property
    def head_names(self) -> tuple[str, ...]:
        """A word for each head, for figures; empty where there is one."""
        return ("",) if self.heads == 1 else tuple(f"head {head}" for head in range(self.heads))

    def at(self, schedule: NoiseSchedule, t: Tensor) -> Prediction:
        """This prediction at timesteps (B,) of a schedule; by default itself, since alpha and sigma say enough."""
        return self

    @abstractmethod
    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """The network's target: (B,C,H,W) each -> (B,heads*C,H,W)."""

    @abstractmethod
    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        """The network's output as x0 and eps: (B,heads*C,H,W), (B,C,H,W) -> Estimate."""

    @abstractmethod
    def native_scale(self, snr: Tensor) -> Tensor:
        """Native loss of an answer divided by its x0-loss: (B,) -> (B,)."""

    def head_scales(self, snr: Tensor) -> Tensor:
        """Native loss of each head divided by its x0-loss: (B,) -> (B,heads)."""
        return self.native_scale(snr)[:, None]

    def loss(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """Mean square error to the target over C, H, W: -> (B,)."""
        return (out - self.target(x0, eps, alpha, sigma)).square().flatten(1).mean(1)

    def parts(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor, snr: Tensor) -> LossParts:
        """The loss, ready to be weighted; snr (B,) is that of each row."""
        return LossParts(self.loss(out, x0, eps, alpha, sigma)[:, None], self.head_scales(snr))

    def errors(self, out: Tensor, x0: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """The values of each row for `observe`, detached: -> (B,E); E = 0 if nothing is tracked."""
        return x0.new_zeros(len(x0), 0)

    def observe(self, log_snr: Tensor, errors: Tensor) -> None:
        """The errors of one update, of all processes in the order of the global batch: (G,), (G,E)."""

    def log_values(self) -> dict[str, Tensor]:
        """Current values of the heads for the log, by name, each (bins,); empty with one head."""
        return {}


class Epsilon(Prediction):
    """The noise (Ho et al. 2020). x0 = (x - sigma eps)/alpha loses precision as SNR -> 0.

    Use: to repeat DDPM and the many papers after it. Near pure noise its error in x0 is multiplied by sigma/alpha.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return eps

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate((x_t - sigma * out) / alpha, out)

    def native_scale(self, snr: Tensor) -> Tensor:
        return snr


class X0(Prediction):
    """The clean image. eps = (x - alpha x0)/sigma loses precision as SNR -> infinity.

    Use: with few solver steps, for small images, or when losses are to be in units of the image.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return x0

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate(out, (x_t - alpha * out) / sigma)

    def native_scale(self, snr: Tensor) -> Tensor:
        return torch.ones_like(snr)


class V(Prediction):
    """v = alpha eps - sigma x0 (Salimans & Ho 2022): both conversions are well conditioned at every t.

    Use: on variance-preserving schedules such as cosine and linear, and the default. Its target is well scaled at both
    ends, so that it trains well even with weighting=unit; min_snr, the default weighting, improved it further on
    digits.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return alpha * eps - sigma * x0

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate(alpha * x_t - sigma * out, sigma * x_t + alpha * out)

    def native_scale(self, snr: Tensor) -> Tensor:
        return 1 + snr


class Velocity(Prediction):
    """u = d x_t/ds = a x0 + b eps, with a = d alpha_t/ds and b = d sigma_t/ds of the path that is used.

    On rectified flow a = -1, b = 1, so u = eps - x0 (Lipman et al. 2023, "Flow matching"; Liu et al. 2023). With
    x = alpha x0 + sigma eps and d = alpha b - sigma a, which is positive wherever the SNR falls,

        x0 = (b x - sigma u)/d,   eps = (alpha u - a x)/d,   E_u = (sqrt(SNR) b - a)^2 E_x0

    Both conversions are regular at every t of rectified flow, where d is alpha + sigma.

    Differs from SiT (Ma et al. 2024): its time runs from noise to data, so that its velocity is x0 - eps.

    Use: with schedule=rectified_flow. On a variance-preserving path v is the usual choice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slopes: tuple[Tensor, Tensor] | None = None  # (B,) each

    def at(self, schedule: NoiseSchedule, t: Tensor) -> Self:
        made = copy.copy(self)
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

    Use: with preconditioning=edm and time=log_noise, usually on schedule=edm; `method=edm` sets all of them.

    Args:
        sigma_data: standard deviation of the images, > 0; the same as in preconditioning=edm.
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
