"""The loss that no model can beat, at each timestep, for the data that a model was trained on.

The source's closed form where it has one (`ImageSource.loss_floor`). Otherwise that of the exact denoiser of the
training images (`metrics.floor`), a mean over some of them, each with a noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.metrics.floor import formula_floor, image_floors, together

if TYPE_CHECKING:
    from diffusion_lab.analyses.base import Work
    from diffusion_lab.diffusion import Denoiser
    from diffusion_lab.training import TrainedDiffusion


class Floor(NamedTuple):
    """The least x0-loss.

    Attributes:
        mean: (K,) float64.
        standard_error: (K,) over the images; zero for a closed form.
        of: what it is the floor of, in words.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    of: str


def least_losses(trained: Sequence[TrainedDiffusion], t: Tensor, images: int, work: Work) -> list[Floor]:
    """The floor of each model of one schedule at timesteps t (K,); models whose data are presented alike share one.

    A mean is taken over `images` training images, evenly spread, or all where there are fewer.
    """
    kinds: list[tuple[object, ...]] = [
        (m.data.source.train().fingerprint(), m.data.flip, *sorted(m.data.conditions.names)) for m in trained
    ]
    first = [kinds.index(kind) for kind in kinds]
    snr = trained[0].denoiser.schedule.snr.cpu()[t]
    found = {m: _closed(trained[m], t) for m in dict.fromkeys(first)}
    sampled = [m for m, floor in found.items() if floor is None]

    def some(m: int, ids: Sequence[int]) -> Mapping[str, np.ndarray]:
        data = trained[m].data

        def eps_of(i: int) -> Tensor:
            return work.streams.normal((1, *data.shape), "analysis", i, 1)

        return {"floor": image_floors(data, ids, eps_of, snr, work.show).numpy()}

    total, tasks = {m: len(trained[m].data.source.train()) for m in sampled}, list[tuple[int, list[int]]]()
    for m in sampled:
        n, size = min(images, total[m]), together(trained[m].data, len(t))
        tasks += [(m, [k * total[m] // n for k in range(n)[start : start + size]]) for start in range(0, n, size)]
    pieces = work.map("floors", some, tasks) if tasks else []
    for m in sampled:
        values = np.concatenate([piece["floor"] for (of, _), piece in zip(tasks, pieces, strict=True) if of == m])
        n = len(values)
        error = values.std(0, ddof=1) / n**0.5 if n > 1 else np.zeros(len(t))
        found[m] = Floor(values.mean(0), error, f"the {total[m]} training images")
    return [floor for m in first if (floor := found[m]) is not None]


def bound_floor(denoiser: Denoiser, t: Tensor, x0_floor: np.ndarray) -> np.ndarray:
    """The least term L_t of the bound with the denoiser's fixed variance V, in bits/dim (K,):

        L_t = 1/2 (Vp/V - 1 - ln(Vp/V) + C1^2 floor_t / V) / ln 2

    with the posterior's variance Vp and coefficient C1 (`diffusion.variance.posterior_kl`), and floor_t the least
    x0-loss (K,). NaN for a learned variance, and at t = 0, where the term is that of the decoder.
    """
    if denoiser.variance.channels:
        return np.full(len(t), np.nan)
    schedule = denoiser.schedule
    there = t.to(schedule.betas.device)
    none = torch.empty(len(t), 0, 1, 1, dtype=torch.float64, device=there.device)
    log_variance = denoiser.variance.log_variance(none, there, schedule).flatten().double().cpu()
    log_ratio = schedule.posterior_log_variance_clipped.cpu()[t] - log_variance
    error = schedule.posterior_mean_coef1.cpu()[t].square() * torch.from_numpy(x0_floor) * torch.exp(-log_variance)
    least = 0.5 * (torch.expm1(log_ratio) - log_ratio + error) / math.log(2)
    return torch.where(t == 0, torch.nan, least).numpy()


def _closed(model: TrainedDiffusion, t: Tensor) -> Floor | None:
    """The source's formula, if it has one for what the model is given."""
    found = formula_floor(model.data, model.denoiser.schedule)
    return found if found is None else Floor(found[t].numpy(), np.zeros(len(t)), "the distribution of the data")
