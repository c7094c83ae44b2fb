"""What three heads answer together: weights w, sum 1, of their estimates of x0 (hence of v and of eps).

In the notation of `head_errors`, q = (-sigma, 1, alpha) and N the tracked moments of the native errors, the estimate
of head h has the expected square error sigma^2 N_hh / q_h^2 in x0-space, and a combination sigma^2 u^T N u with
u_h = w_h / q_h. The common sigma^2 decides nothing, so weights are the same for x0, v and eps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number

TINY = 1e-30  # below the square of any error of float32 answers


class GenerationHead(ABC):
    """Weights of the heads' estimates."""

    needs_gate: bool = False

    @abstractmethod
    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        """Weights.

        Args:
            q: (B,3) float64 (-sigma, 1, alpha).
            moments: (B,3,3) float64 N.
            gate: (B,3) float64 the training gates where they depend on the noise alone, else None.

        Returns:
            (B,3) float64, sum 1.
        """


class BestHead(GenerationHead):
    """The head with the least tracked x0-space error N_hh / q_h^2 (times sigma^2).

    At the least noise that may be a head that no gate has trained there: x_t is nearly the image, and an answer of v or
    eps near zero gives nearly x_t. In experiments/mixed, runs whose gates were all x0's were worse than x0 for it.
    """

    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        best = _precision(q, moments).argmax(1)
        return torch.nn.functional.one_hot(best, 3).to(q.dtype)


class SNRHead(GenerationHead):
    """x0 where SNR < 1, eps elsewhere: where each is the better conditioned of the two."""

    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        noisy = (-q[:, 0] > q[:, 2]).to(q.dtype)
        return torch.stack([noisy, torch.zeros_like(noisy), 1 - noisy], dim=1)


class AverageHead(GenerationHead):
    """w_h ~ q_h^2 / N_hh, the inverse of the tracked x0-space error; optimal for heads with unrelated errors."""

    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        precision = _precision(q, moments)
        return precision / precision.sum(1, keepdim=True)


class GateHead(GenerationHead):
    """The training gates, for a reduction in which they depend on the noise alone."""

    needs_gate = True

    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        assert gate is not None, "GateHead.weights: gate=None must be (B,3); needs_gate says so"
        return gate


class LeastSquaresHead(GenerationHead):
    """The weights w >= 0 with the least tracked x0-space error:

        minimise  w^T C w,   sum w = 1,   w >= 0,      C_hk = N_hk / (q_h q_k)

    Where no bound is active, w = C^-1 1 / (1^T C^-1 1), with C^-1 1 = q * (N^-1 q): nothing is divided by alpha or
    sigma. This is the generalised least-squares estimate of v from the three observations y = q v + n.

    w >= 0, because a negative weight extrapolates from heads whose errors are alike, which multiplies what N has
    wrong (the moving average is of the raw weights in training mode; generation uses averaged ones). Within the
    bound the expected error is never above that of the best single head. Exact for three heads: of the 7 sets of
    heads, each solved without the bound, the feasible one with the least error. `ridge` shrinks the correlations to
    corr/(1 + ridge), which is N + ridge diag(N) and keeps N invertible.

    Args:
        ridge: how much the heads' correlations are shrunk, >= 0: relative to each head's own mean square error.
    """

    def __init__(self, ridge: float = 0.05) -> None:
        self.ridge = check_number("ridge", ridge, "[)", 0, math.inf, "use 0.05")

    def weights(self, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        # In units of each head's own error: R the correlations, p = q / std, so u^T N u is c^T R c with w = p c.
        variance = _floored(moments.diagonal(dim1=1, dim2=2))
        std = variance.sqrt()
        p = q / std
        scale = p.abs().amax(1, keepdim=True)
        p = p / scale
        ridge = self.ridge + 1e-9  # heads with one and the same answer have a singular R
        correlation = moments / (std[:, :, None] * std[:, None, :]) / (1 + ridge)
        eye = torch.eye(3, dtype=q.dtype, device=q.device)
        correlation = correlation * (1 - eye) + eye
        sets = torch.arange(1, 8, device=q.device)[:, None]
        mask = (sets >> torch.arange(3, device=q.device) & 1).to(q.dtype)  # (7,3), made where q is
        chosen = mask[:, :, None] * mask[:, None, :]
        system = correlation[:, None] * chosen + eye * (1 - chosen)  # (B,7,3,3)
        inside = p[:, None] * mask  # (B,7,3)
        c, _ = torch.linalg.solve_ex(system, inside)  # without the check, for which the host would wait
        weights = inside * c
        precision = weights.sum(2)  # p^T R^-1 p = 1 / least error
        feasible = (weights >= 0).all(2) & (precision > 0)
        best = torch.where(feasible, precision, -1.0).argmax(1)
        rows = torch.arange(len(q), device=q.device)
        return weights[rows, best] / precision[rows, best, None]


def _floored(variance: Tensor) -> Tensor:
    """N_hh, not below 1e-12 of the largest: a head without any error would divide by 0. (B,3)."""
    return torch.maximum(variance, 1e-12 * variance.amax(1, keepdim=True) + TINY)


def _precision(q: Tensor, moments: Tensor) -> Tensor:
    """q_h^2 / N_hh: (B,3)."""
    return q.square() / _floored(moments.diagonal(dim1=1, dim2=2))
