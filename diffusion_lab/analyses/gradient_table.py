"""A table of gradients by image, timestep and noise, and what it says about the variance of one row.

With g(x, t, eps) the gradient of a row, the table has for n images x_i at K timesteps, from r noises each,

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

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.row_gradients import row_gradients, training_images
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from diffusion_lab.analyses.work import Work


class Parts(NamedTuple):
    """`noise` (...,K), `images` (...,K) and `gram` (...,K,K) of the module's docstring."""

    noise: np.ndarray
    images: np.ndarray
    gram: np.ndarray


class Table(NamedTuple):
    """The measured gradients of one model.

    Attributes:
        mean: D (n,K,s).
        within: w (n,K).
        noises: r.
    """

    mean: np.ndarray
    within: np.ndarray
    noises: int

    def parts(self) -> tuple[Parts, Parts]:
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

    def _parts(self, within: np.ndarray, product: np.ndarray, own: np.ndarray, n: int) -> Parts:
        """From the sums over n images of w and of D, as Gram matrices of the sum and summed ones of each image."""
        noise = within / n
        of_sum, of_each = (np.diagonal(values, axis1=-2, axis2=-1) for values in (product, own))
        images = (of_each - of_sum / n) / (n - 1) - noise / self.noises
        return Parts(noise, images, (product - own) / (n * (n - 1)))


class Sketch:
    """The map from P to s numbers.

    Args:
        work: gives the random numbers.
        size: s.
    """

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
    models: list[Trained], grid: Tensor, images: int, noises: int, size: int, batch_size: int, work: Work
) -> list[Table]:
    """The table of each model, a piece of work for each of its images.

    Args:
        models: the models.
        grid: (K,) timesteps.
        images: n, training images, evenly spread.
        noises: r >= 2 for each image and timestep.
        size: s.
        batch_size: rows of one network call.
        work: random numbers and pieces.
    """
    drawn = [training_images(model, images) for model in models]
    sketch, points = Sketch(work, size), len(grid)

    def one(m: int, i: int) -> Mapping[str, np.ndarray]:
        ids, x0, cond = drawn[m]
        shape = points * noises, *x0.shape[1:]
        rows = row_gradients(
            models[m].denoiser,
            x0[i].expand(shape),
            work.normal(shape, int(ids[i])),
            grid.to(x0.device).repeat_interleave(noises),
            {key: value[i].expand(shape[0], *value.shape[1:]) for key, value in cond.items()},
            batch_size,
        )
        found = sketch(rows).view(points, noises, -1).double()
        mean, within = found.mean(1), found.var(1).sum(1)
        return {"mean": mean.float().cpu().numpy(), "within": within.cpu().numpy()}

    pieces = work.map("gradients", one, [(m, i) for m in range(len(models)) for i in range(images)])
    tables = []
    for m in range(len(models)):
        some = pieces[m * images : (m + 1) * images]
        mean, within = (np.stack([piece[key] for piece in some]) for key in ("mean", "within"))
        tables.append(Table(mean, within, noises))
    return tables
