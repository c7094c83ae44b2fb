"""A network that predicts x0, v and eps at once, with 3C channels for images of C channels, in this order."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from diffusion_lab.diffusion.generation_heads import GenerationHead
from diffusion_lab.diffusion.head_errors import HEADS, HeadErrors, angle
from diffusion_lab.diffusion.head_losses import native_scales
from diffusion_lab.diffusion.prediction import Estimate, Parts, Prediction


class ThreeHeads(Prediction):
    """Three heads that share a network, a rule for their training gates, and one for their answer in generation.

    Training: row i's loss has the three parts g_h E_h with gates g >= 0, sum 1, and E_h the head's native mean square
    error. Divided by the native scales (1, 1 + SNR, SNR) each part is an x0-loss, so every weighting applies; for one
    and the same answer of all heads the parts add up to that answer's x0-loss.

    Generation: with y = (x0_hat - alpha x, v_hat, eps_hat - sigma x), q = (-sigma, 1, alpha) and weights w, sum 1,

        v = sum_h (w_h / q_h) y_h,     x0 = alpha x - sigma v,     eps = sigma x + alpha v

    which is the weighted average of the heads' estimates of x0. Passing through v keeps the pair consistent at every
    noise, alpha x0 + sigma eps = x, and neither of the last two steps divides; 1/alpha or 1/sigma appears only if w
    leans on a head where that head is ill-conditioned. A single head's own answer comes back to within rounding.

    Args:
        generation_head: gives w.
        tracker: the heads' errors, observed after every update.
    """

    heads = len(HEADS)
    tracker: HeadErrors

    def __init__(self, generation_head: GenerationHead, tracker: HeadErrors) -> None:
        super().__init__()
        self.generation_head = generation_head
        self.tracker = tracker

    @property
    def head_names(self) -> tuple[str, ...]:
        return HEADS

    @abstractmethod
    def gates(self, squares: Tensor, phi: Tensor, snr: Tensor) -> Tensor:
        """Training gates from detached native square errors: (B,3,P), (B,), (B,) -> (B,3,P) or (B,3,1)."""

    def head_scales(self, snr: Tensor) -> Tensor:
        return native_scales(snr)

    def gate_of_noise(self, q: Tensor) -> Tensor | None:
        """The gates (B,3) where they depend on the noise alone, else None; q (B,3)."""
        return None

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return torch.cat([x0, alpha * eps - sigma * x0, eps], dim=1)

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        x0, v, eps = out.chunk(3, dim=1)
        q = observation(alpha, sigma)
        weights = self.generation_head.weights(q, self.tracker.matrix(angle(alpha, sigma)), self.gate_of_noise(q))
        # In float64, (B,3): w_eps/alpha is 0/tiny or tiny/tiny where the head is not used.
        u = (weights / q).to(out.dtype).unflatten(0, (-1, *[1] * (out.ndim - 1)))
        v = u[..., 0] * (x0 - alpha * x_t) + u[..., 1] * v + u[..., 2] * (eps - sigma * x_t)
        return Estimate(alpha * x_t - sigma * v, sigma * x_t + alpha * v)

    def loss(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """The gated native loss, (B,)."""
        snr = (alpha / sigma).square().flatten()
        return self.parts(out, x0, eps, alpha, sigma, snr).loss.sum(1)

    def parts(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor, snr: Tensor) -> Parts:
        squares = pixel_squares(self._residuals(out, x0, eps, alpha, sigma))
        gates = self.gates(squares.detach(), angle(alpha, sigma), snr).to(squares.dtype)
        return Parts((gates * squares).mean(2), self.head_scales(snr))

    @torch.no_grad()
    def errors(self, out: Tensor, x0: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        residuals = self._residuals(out, x0, (x_t - alpha * x0) / sigma, alpha, sigma)
        snr = (alpha / sigma).square().flatten()
        gates = self.gates(pixel_squares(residuals), angle(alpha, sigma), snr).mean(2)
        return self.tracker.row(residuals.flatten(2), gates)

    def observe(self, log_snr: Tensor, errors: Tensor) -> None:
        self.tracker.observe(log_snr, errors)

    @torch.no_grad()
    def log_values(self) -> dict[str, Tensor]:
        """By bin of noise, (bins,): each head's share of the recent selections, and its weight in generation now."""
        phi = self.tracker.centres()
        q = observation(phi.cos(), phi.sin())
        weights = self.generation_head.weights(q, self.tracker.matrix(phi), self.gate_of_noise(q))
        shares = self.tracker.shares()
        values = {f"prediction/head_{head}": shares[:, i] for i, head in enumerate(HEADS)}
        return values | {f"prediction/weight_{head}": weights[:, i] for i, head in enumerate(HEADS)}

    def _residuals(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """(B,3,C,H,W): each head's error in its native space."""
        return (out - self.target(x0, eps, alpha, sigma)).unflatten(1, (3, -1))


def observation(alpha: Tensor, sigma: Tensor) -> Tensor:
    """q = (-sigma, 1, alpha): (B,1,...,1) -> (B,3) float64."""
    alpha, sigma = alpha.double().flatten(), sigma.double().flatten()
    return torch.stack([-sigma, torch.ones_like(sigma), alpha], dim=1)


def pixel_squares(residuals: Tensor) -> Tensor:
    """Mean square over the channels: (B,3,C,H,W) -> (B,3,H*W)."""
    return residuals.square().mean(2).flatten(2)
