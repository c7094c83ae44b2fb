"""The updates of copies of one model that are trained side by side on other draws.

With u_r (d,) the update theta_{k+1} - theta_k of copy r of R at step k, the Gram matrix G_rs = u_r . u_s (R,R) gives

    norm                |u_r| = sqrt(G_rr)
    cosine              u_{k+1} . u_k / (|u_{k+1}| |u_k|), of one copy at consecutive steps
    signal              S = mean_{r != s} G_rs, an unbiased estimate of |E u|^2
    noise               V = mean_r G_rr - S, an unbiased estimate of tr Cov u
    noise scale         N = sum_k V_k / sum_k S_k

N is the simple noise scale of McCandlish et al., "An empirical model of large-batch training", 2018, of an update in
place of a gradient. For a constant gradient the cosine is 1 and N = 0. For gradients mu + sigma z, z white, momentum
m <- beta m + (1 - beta) g gives N = (1 - beta)/(1 + beta) d sigma^2/|mu|^2, and for mu = 0 the mean cosine beta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Updates(NamedTuple):
    """Updates of R copies in K steps.

    Attributes:
        gram: (K,R,R) float64.
        cosine: (R,K-1) float64, between the steps k and k + 1; NaN where an update is zero.
    """

    gram: np.ndarray
    cosine: np.ndarray


@torch.no_grad()
def follow(copies: Sequence[Iterable[Tensor]], steps: int, update: Callable[[int, int], object]) -> Updates:
    """Take K steps with every copy.

    Args:
        copies: parameters of each.
        steps: K.
        update: update(r, k) does step k of copy r.
    """
    parameters = [list(some) for some in copies]
    before: list[Tensor | None] = [None] * len(parameters)
    gram, cosine = [], []
    for k in range(steps):
        moved = []
        for r, some in enumerate(parameters):
            old = _flat(some)
            with torch.enable_grad():
                update(r, k)
            moved.append(_flat(some) - old)
        gram.append(torch.stack([torch.stack([a.double() @ b.double() for b in moved]) for a in moved]))
        if k:
            cosine.append([_cosine(a, b) for a, b in zip(before, moved, strict=True)])
        before = list(moved)
    return Updates(torch.stack(gram).cpu().numpy(), np.array(cosine).reshape(steps - 1, -1).T)


def noise_scale(gram: np.ndarray) -> tuple[float, float]:
    """N and its jackknife standard error over copies, of (K,R,R), R >= 3; inf and NaN where no signal is seen."""
    copies = gram.shape[1]
    scale = _scale(gram)
    kept = [[s for s in range(copies) if s != r] for r in range(copies)]
    without = np.array([_scale(gram[:, some][:, :, some]) for some in kept])
    if not np.isfinite([scale, *without]).all():
        return scale, float("nan")
    return scale, float(np.sqrt((copies - 1) / copies * np.square(without - without.mean()).sum()))


def _scale(gram: np.ndarray) -> float:
    copies = gram.shape[1]
    square = np.trace(gram, axis1=1, axis2=2).sum() / copies
    signal = (gram.sum() - square * copies) / (copies * (copies - 1))
    return max(0.0, float(square / signal - 1)) if signal > 0 else float("inf") if square > 0 else float("nan")


def _flat(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def _cosine(a: Tensor | None, b: Tensor) -> float:
    if a is None:
        return float("nan")
    a, b = a.double(), b.double()
    return float(a @ b / (a.norm() * b.norm()))
