"""The updates of copies of one model that are trained side by side on other draws.

With u_rk (d,) the update theta_{k+1} - theta_k of copy r of R at step k, and v_r its mean over the L counted steps,

    norm                |u_rk|
    cosine              u_{r,k+1} . u_rk / (|u_{r,k+1}| |u_rk|), of one copy at consecutive steps
    signal              S = mean_{r != s} v_r . v_s, an unbiased estimate of |E v|^2
    noise               V = mean_rk |u_rk|^2 - S, where E u is the same in all steps an unbiased estimate of tr Cov u
    noise scale         N = V/S

N is the simple noise scale of McCandlish et al., "An empirical model of large-batch training", 2018, of an update in
place of a gradient. For a constant gradient the cosine is 1 and N = 0. For gradients mu + sigma z, z white, momentum
m <- beta m + (1 - beta) g gives N = (1 - beta)/(1 + beta) d sigma^2/|mu|^2, and for mu = 0 the mean cosine beta.
Products of v have less noise than those of u_k of one step: all pairs of steps enter, L^2 in place of L.
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
        norm: (R,K) float64.
        cosine: (R,K-1) float64, between the steps k and k + 1; NaN where an update is zero.
        gram: (R,R) float64, v_r . v_s over the steps after the warm-up.
    """

    norm: np.ndarray
    cosine: np.ndarray
    gram: np.ndarray


@torch.no_grad()
def follow(
    copies: Sequence[Iterable[Tensor]], steps: int, update: Callable[[int, int], object], warmup: int = 0
) -> Updates:
    """Take K steps with every copy, one copy after another.

    Args:
        copies: parameters of each.
        steps: K.
        update: update(r, k) does step k of copy r.
        warmup: first steps that do not count in `gram`.
    """
    norm, cosine, means = [], [], []
    for r, copied in enumerate(copies):
        parameters, moved, total = list(copied), [], torch.zeros(())
        norm.append([])
        cosine.append([])
        for k in range(steps):
            old = _flat(parameters)
            with torch.enable_grad():
                update(r, k)
            moved = [*moved[-1:], (_flat(parameters) - old).double()]
            norm[r].append(float(moved[-1].norm()))
            if k:
                cosine[r].append(float(moved[0] @ moved[1] / (norm[r][-2] * norm[r][-1] or float("nan"))))
            if k >= warmup:
                total = total + moved[-1]
        means.append(total / (steps - warmup))
    gram = torch.stack(means) @ torch.stack(means).T
    return Updates(np.array(norm), np.array(cosine), gram.cpu().numpy())


def noise_scale(norm: np.ndarray, gram: np.ndarray) -> tuple[float, float]:
    """N and its jackknife standard error over copies, from the norms (R,L) of the counted steps and the Gram matrix
    (R,R), R >= 3; inf and NaN where no signal is seen."""
    copies = len(gram)
    scale = _scale(norm, gram)
    kept = [[s for s in range(copies) if s != r] for r in range(copies)]
    without = np.array([_scale(norm[some], gram[np.ix_(some, some)]) for some in kept])
    if not np.isfinite([scale, *without]).all():
        return scale, float("nan")
    return scale, float(np.sqrt((copies - 1) / copies * np.square(without - without.mean()).sum()))


def _scale(norm: np.ndarray, gram: np.ndarray) -> float:
    copies, square = len(gram), float(np.square(norm).mean())
    signal = float(gram.sum() - np.trace(gram)) / (copies * (copies - 1))
    return max(0.0, square / signal - 1) if signal > 0 else float("inf") if square > 0 else float("nan")


def _flat(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])
