"""Gradients of single pairs of image and noise, what a batch's gradient is the mean of, and their moments.

g_i is the gradient of the native loss E(x0_i, eps_i, t_i), unweighted, in all trained parameters, in eval mode. From
|g_i|^2 and g_i . sum_j g_j of N pairs at one timestep,

    V = 1/(N-1) (sum_i |g_i|^2 - |sum_i g_i|^2 / N)          trace of the covariance
    U = (|sum_i g_i|^2 - sum_i |g_i|^2) / (N (N-1))          unbiased for the squared norm of the expectation

U is |mean|^2 - V/N, the mean of g_i . g_j over i != j. A table of the gradients g(x, t, eps) of n images x_i at K
timesteps, from r noises each, has

    D_ik = mean over noises of g          (s,) numbers, see below
    w_ik = variance over noises of g      trace

and from these, without bias,

    noise_k    = E_x Var_eps g            mean_i w_ik
    images_k   = Var_x E_eps g            variance over i of D_ik, less noise_k / r
    gram_kl    = mu_k . mu_l              mean over i != j of D_ik . D_jl, mu_k = E g at timestep k

Gradients of P numbers are replaced by sketches of s < P numbers: number p is added to place h_p with sign e_p, both
random (Charikar et al. 2002, "count sketch"). Inner products keep their expectation, and |g|^2 has the relative
standard deviation sqrt(2/s), 2.2 % for s = 4096. With P <= s nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffusion_lab.analyses.base import Work
from diffusion_lab.analyses.images import training_images
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training import TrainedDiffusion

BLOCK = 2**29  # bytes of gradients that are computed together


class _Loss(nn.Module):
    """The native loss of one row, as a `forward`, which `functional_call` needs."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x0: Tensor, eps: Tensor, t: Tensor, cond: Cond) -> Tensor:
        row = {key: value[None] for key, value in cond.items()}
        return self.denoiser.loss(x0[None], eps[None], t[None], **row).native.sum()


def gradient_blocks(
    denoiser: Denoiser, x0: Tensor, eps: Tensor, t: Tensor, cond: Cond, batch_size: int = 32
) -> Iterator[Tensor]:
    """The gradient of each row, (N,C,H,W), (N,C,H,W), (N,), in blocks (n,P), P the number of trained parameters: n is
    `batch_size`, or as many rows as have `BLOCK` bytes, at least one.

    The rows of a block are differentiated together (`vmap`), which on a CPU takes a third of the time of a backward
    pass for each.
    """
    loss = _Loss(denoiser)
    parameters = {name: p.detach() for name, p in loss.named_parameters() if p.requires_grad}

    def of_one(values: dict[str, Tensor], *row: Tensor | Cond) -> Tensor:
        return functional_call(loss, values, row)

    of_all = vmap(grad(of_one), in_dims=(None, 0, 0, 0, 0))
    fitting = max(1, BLOCK // sum(p.nbytes for p in parameters.values()))
    for some in torch.arange(len(x0), device=x0.device).split(min(batch_size, fitting)):
        given = {key: value[some] for key, value in cond.items()}
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no batching rule
            rows = of_all(parameters, x0[some], eps[some], t[some], given)
        yield torch.cat([rows[name].flatten(1) for name in parameters], dim=1)


def moments(square: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and U: |g_i|^2 (...,N), g_i . sum_j g_j (...,N) -> (...), (...)."""
    n = square.shape[-1]
    return _moments(square.sum(-1), product.sum(-1), n)


def without_each(square: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and U of all pairs but one: (...,N), (...,N) -> (...,N), (...,N)."""
    n = square.shape[-1]
    squares, of_sum = (values.sum(-1, keepdims=True) for values in (square, product))
    return _moments(squares - square, of_sum - 2 * product + square, n - 1)


def jackknife(values: np.ndarray) -> np.ndarray:
    """Standard error of a statistic from its values without each of N: (...,N) -> (...)."""
    return np.sqrt((values.shape[-1] - 1) * values.var(-1))


def _moments(squares: np.ndarray, of_sum: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """From sum_i |g_i|^2 and |sum_i g_i|^2."""
    return (squares - of_sum / n) / (n - 1), (of_sum - squares) / (n * (n - 1))


class GradientParts(NamedTuple):
    """`noise` (...,K), `images` (...,K) and `gram` (...,K,K) of the module's docstring."""

    noise: np.ndarray
    images: np.ndarray
    gram: np.ndarray


class GradientTable(NamedTuple):
    """The measured gradients of one model.

    Attributes:
        mean: D (n,K,s).
        within: w (n,K).
        noises: r.
    """

    mean: np.ndarray
    within: np.ndarray
    noises: int

    def parts(self) -> tuple[GradientParts, GradientParts]:
        """From all images, and (n,...) without each of them."""
        d = self.mean.astype(np.float64)
        n, total = len(d), d.sum(0)
        own = d @ d.transpose(0, 2, 1)  # (n,K,K)
        cross = d @ total.T
        product = total @ total.T
        each = product - cross - cross.transpose(0, 2, 1) + own
        sums = self.within.sum(0)
        return (
            self._parts(sums, product, own.sum(0), n),
            self._parts(sums - self.within, each, own.sum(0) - own, n - 1),
        )

    def _parts(self, within: np.ndarray, product: np.ndarray, own: np.ndarray, n: int) -> GradientParts:
        """From the sums over n images of w and of D, as Gram matrices of the sum and summed ones of each image."""
        noise = within / n
        of_sum, of_each = (np.diagonal(values, axis1=-2, axis2=-1) for values in (product, own))
        images = (of_each - of_sum / n) / (n - 1) - noise / self.noises
        return GradientParts(noise, images, (product - own) / (n * (n - 1)))


class Sketch:
    """The map from P to `size` = s numbers, drawn from `work`."""

    def __init__(self, work: Work, size: int) -> None:
        self.work, self.size = work, size
        self._place: Tensor | None = None
        self._sign: Tensor | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """(N,P) -> (N, min(P, s))."""
        if rows.shape[1] <= self.size:
            return rows
        if self._place is None or self._sign is None or len(self._place) != rows.shape[1]:
            place, sign = self.work.streams.uniform(2 * rows.shape[1], "analysis", 0, 0, 0, 0).chunk(2)
            self._place = (place * self.size).long().to(rows.device)
            self._sign = torch.where(sign < 0.5, -1.0, 1.0).to(rows)
        return rows.new_zeros(len(rows), self.size).index_add_(1, self._place, rows * self._sign)


def measure(
    models: list[TrainedDiffusion], grid: Tensor, images: int, noises: int, size: int, batch_size: int, work: Work
) -> list[GradientTable]:
    """The table of each model at the timesteps `grid` (K,), a piece of work for each of n training images, with r >= 2
    noises for each image and timestep and sketches of `size` numbers."""
    drawn = [training_images(model, images) for model in models]
    sketch, points = Sketch(work, size), len(grid)

    def one(m: int, i: int) -> Mapping[str, np.ndarray]:
        ids, x0, cond = drawn[m]
        shape = points * noises, *x0.shape[1:]
        rows = gradient_blocks(
            models[m].denoiser,
            x0[i].expand(shape),
            work.normal(shape, int(ids[i])),
            grid.to(x0.device).repeat_interleave(noises),
            {key: value[i].expand(shape[0], *value.shape[1:]) for key, value in cond.items()},
            batch_size,
        )
        found = torch.cat([sketch(block) for block in rows]).view(points, noises, -1).double()
        mean, within = found.mean(1), found.var(1).sum(1)
        return {"mean": mean.float().cpu().numpy(), "within": within.cpu().numpy()}

    pieces = work.nested("gradients", one, len(models), images)
    stacks = [[np.stack([piece[key] for piece in some]) for key in ("mean", "within")] for some in pieces]
    return [GradientTable(mean, within, noises) for mean, within in stacks]
