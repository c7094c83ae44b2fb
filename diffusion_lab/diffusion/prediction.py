"""What the network predicts. With x = alpha x0 + sigma eps, alpha = sqrt(A_t), sigma = sqrt(1-A_t):

    v = alpha eps - sigma x0                          (Salimans & Ho 2022)
    x0  = (x - sigma eps)/alpha = alpha x - sigma v
    eps = (x - alpha x0)/sigma  = sigma x + alpha v

For one and the same answer the mean square errors in the three spaces are tied by

    E_eps = SNR E_x0,     E_v = (1 + SNR) E_x0 = E_eps + E_x0

so a weighting written on the x0-loss serves every prediction: divide by `native_scale`.

alpha and sigma are given ready to broadcast, (B,1,1,1) for images. x is the point of the variance-preserving path,
alpha^2 + sigma^2 = 1, on every schedule: `Denoiser` divides x_t of another path by sqrt(alpha_t^2 + sigma_t^2) first.
What depends on more than the SNR asks for the schedule in `at`; see `velocity.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion.schedule import NoiseSchedule


class Estimate(NamedTuple):
    """Both parts of x_t, as estimated from a network output."""

    x0: Tensor  # (B,C,H,W), not clipped
    eps: Tensor  # (B,C,H,W)


class Parts(NamedTuple):
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

    def parts(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor, snr: Tensor) -> Parts:
        """The loss, ready to be weighted; snr (B,) is that of each row."""
        return Parts(self.loss(out, x0, eps, alpha, sigma)[:, None], self.head_scales(snr))

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

    Use: to repeat papers that have it; near pure noise its error in x0 is multiplied by sigma/alpha.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return eps

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate((x_t - sigma * out) / alpha, out)

    def native_scale(self, snr: Tensor) -> Tensor:
        return snr


class X0(Prediction):
    """The clean image. eps = (x - alpha x0)/sigma loses precision as SNR -> infinity.

    Use: few solver steps, small images, or when losses have to be in units of the image.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return x0

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate(out, (x_t - alpha * out) / sigma)

    def native_scale(self, snr: Tensor) -> Tensor:
        return torch.ones_like(snr)


class V(Prediction):
    """v = alpha eps - sigma x0 (Salimans & Ho 2022): both conversions are well conditioned at every t.

    Use: variance-preserving schedules: it is well scaled at both ends and needs no weighting.
    """

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return alpha * eps - sigma * x0

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        return Estimate(alpha * x_t - sigma * out, sigma * x_t + alpha * out)

    def native_scale(self, snr: Tensor) -> Tensor:
        return 1 + snr
