"""The spectrum of a symmetric matrix that is known by its products with vectors, such as the Hessian of a loss.

After m steps from a unit vector v, the tridiagonal matrix T with diagonal alpha and off-diagonal beta has the
eigenpairs (theta_i, s_i). The Ritz values theta_i approach the extreme eigenvalues of H from inside, with

    min_j |lambda_j - theta_i| <= beta_m |s_mi|,        v^T f(H) v ~ sum_i w_i f(theta_i),   w_i = s_1i^2

(Golub & Welsch 1969). For v uniform on {-1, 1}^P / sqrt(P) the weights w average to the share of the eigenvalues
(Ghorbani et al., "An investigation into neural net optimization via Hessian eigenvalue density", 2019, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffusion_lab.training import FixedSetLoss

Product = Callable[[Tensor], Tensor]
Gradient = tuple[Tensor, ...]


class Ritz(NamedTuple):
    """The eigenpairs of T, eigenvalues increasing.

    Attributes:
        values: (m,) theta_i.
        weights: (m,) w_i, with sum 1.
        errors: (m,) bounds of the distance to the nearest eigenvalue of H.
    """

    values: np.ndarray
    weights: np.ndarray
    errors: np.ndarray


def lanczos(hvp: Product, v0: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """T of `steps` Lanczos iterations with full re-orthogonalisation, twice at each step.

    Without it rounding lets copies of converged eigenvalues appear in T.

    Args:
        hvp: v (P,) -> H v (P,) for a symmetric H.
        v0: (P,) start, not zero; of any length and of the precision of the products.
        steps: largest number m of iterations; fewer where an invariant subspace is exhausted.

    Returns:
        alphas (m,) and betas (m,), float64 on the CPU. beta_1 .. beta_{m-1} are the off-diagonal of T; beta_m is the
        length of the rest after the last step, 0 in an exhausted subspace.
    """
    steps = min(steps, len(v0))
    basis = v0.new_empty(steps, len(v0))
    alphas, betas, v = [], [], v0 / v0.norm()
    tiny = math.sqrt(len(v0)) * torch.finfo(v0.dtype).eps
    for j in range(steps):
        basis[j] = v
        w = hvp(v)
        alphas.append(float(v @ w))
        size = float(w.norm())
        for _ in range(2):
            w = w - basis[: j + 1].T @ (basis[: j + 1] @ w)
        betas.append(float(w.norm()))
        if betas[-1] <= tiny * max(size, *map(abs, alphas)):
            betas[-1] = 0.0
            break
        v = w / betas[-1]
    return torch.tensor(alphas, dtype=torch.float64), torch.tensor(betas, dtype=torch.float64)


def ritz(alphas: np.ndarray, betas: np.ndarray) -> Ritz:
    """Eigenpairs of T, from what `lanczos` returns."""
    inner = betas[:-1]
    values, vectors = np.linalg.eigh(np.diag(alphas) + np.diag(inner, 1) + np.diag(inner, -1))
    return Ritz(values, vectors[0] ** 2, betas[-1] * np.abs(vectors[-1]))


def largest(found: Sequence[Ritz], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest eigenvalues, descending, and their error bounds, from several start vectors.

    The i-th largest Ritz value of each vector is at most the i-th largest eigenvalue (Cauchy's interlacing), so the
    greatest of them is the best.
    """
    count = min(count, *(len(one.values) for one in found))
    values = np.stack([one.values[::-1][:count] for one in found])
    errors = np.stack([one.errors[::-1][:count] for one in found])
    best = values.argmax(0)
    return values[best, np.arange(count)], errors[best, np.arange(count)]


def smallest(found: Sequence[Ritz], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` smallest eigenvalues, ascending, and their error bounds."""
    turned = [Ritz(-one.values[::-1], one.weights[::-1], one.errors[::-1]) for one in found]
    values, errors = largest(turned, count)
    return -values, errors


def density(found: Sequence[Ritz], grid: np.ndarray, width: float) -> np.ndarray:
    """(V,G) share of the eigenvalues per unit of lambda, of each start vector: sum_i w_i N(grid; theta_i, width^2)."""
    return np.stack(
        [
            np.exp(-0.5 * ((grid[:, None] - one.values) / width) ** 2) @ one.weights / (width * math.sqrt(2 * math.pi))
            for one in found
        ]
    )


class HessianVector:
    """v (P,) -> H v (P,), H the Hessian of the mean of the K losses in the P parameters that need a gradient.

    The products are exact up to rounding: d/dtheta (g(theta)^T v) with the graph of g. Attention is computed by its
    formula, because the fast kernels have no second derivative, and without autocast, whose rounding a second
    derivative would amplify. With a single part its gradient is computed once and its graph is kept.

    Args:
        module: holds the weights; in eval mode.
        loss: on a fixed set.
    """

    def __init__(self, module: nn.Module, loss: FixedSetLoss) -> None:
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.size = sum(parameter.numel() for parameter in self.parameters)
        self._parts = list(loss.parts)
        self._rows = 0
        self._kept: Gradient | None = None

    def __call__(self, v: Tensor) -> Tensor:
        cut = v.split([parameter.numel() for parameter in self.parameters])
        vectors = [piece.view(p.shape).to(p) for piece, p in zip(cut, self.parameters, strict=True)]
        total, rows = torch.zeros_like(v), 0
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), torch.autocast(v.device.type, enabled=False):
            for gradient, n in self._gradients():
                keep = gradient is self._kept
                found = torch.autograd.grad(
                    gradient, self.parameters, vectors, retain_graph=keep, materialize_grads=True
                )
                total += torch.cat([piece.flatten() for piece in found])
                rows += n
        return total / rows

    def _gradients(self) -> Iterator[tuple[Gradient, int]]:
        """Of each part: the gradient of the sum over its rows, with its graph, and the number of rows."""
        if self._kept is not None:
            yield self._kept, self._rows
            return
        for part in self._parts:
            losses = part()
            sums = losses.mean(1).sum()
            gradient = torch.autograd.grad(sums, self.parameters, create_graph=True, materialize_grads=True)
            if len(self._parts) == 1:
                self._kept, self._rows = gradient, len(losses)
            yield gradient, len(losses)
