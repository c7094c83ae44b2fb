"""The part of a batch's variance that a sampler's draws cause, as moments that any model's mean gradients multiply.

The mean gradient is linear between the K points of a grid, mu(t) = sum_k h_k(t) mu_k. Given the timesteps of a batch of
B rows with weights w_i, the expected batch gradient is sum_k a_k mu_k with the *coverage* a_k = 1/B sum_i w_i h_k(t_i),
of expectation b_k = sum_t p_t w_t h_k(t). So

    Var_t E[gradient | t] = sum_kl Cov(a)_kl  mu_k . mu_l

where Cov(a) depends on the sampler and B alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position, StepRecord, TimestepSampler
from diffusion_lab.timesteps.grid import interpolated
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from diffusion_lab.analyses.work import Work

PASSES = 10  # losses of every timestep, the history of `LossSecondMoment`


class Density(NamedTuple):
    """What one draw of a sampler is.

    Attributes:
        p: (T,) its probabilities.
        weight: (T,) the weights of the loss.
        hats: (K,T) h_k(t).
    """

    p: np.ndarray
    weight: np.ndarray
    hats: np.ndarray

    @property
    def effective(self) -> np.ndarray:
        """(T,) p_t w_t: the objective is sum_t p_t w_t L_t."""
        return self.p * self.weight

    @property
    def mean(self) -> np.ndarray:
        """(K,) b."""
        return self.hats @ self.effective

    @property
    def square(self) -> np.ndarray:
        """(K,) sum_t p_t w_t^2 h_k(t), which multiplies what varies inside a timestep."""
        return self.hats @ (self.effective * self.weight)

    def independent(self) -> np.ndarray:
        """(K,K): B Cov(a) of independent draws."""
        mean = self.mean
        return (self.hats * (self.effective * self.weight)) @ self.hats.T - np.outer(mean, mean)


def density(sampler: TimestepSampler, step: int, grid: Tensor) -> Density:
    """Of a sampler at an optimizer step."""
    t = torch.arange(sampler.num_timesteps)
    hats = interpolated(torch.eye(len(grid), dtype=torch.float64), grid)
    return Density(sampler.probabilities(step).numpy(), sampler.weight(t, step).double().numpy(), hats.numpy())


def draws_independently(sampler: TimestepSampler) -> bool:
    """Whether the rows of a batch are independent, so that Cov(a) is known without drawing."""
    return type(sampler).draw is TimestepSampler.draw


def coverages(sampler: TimestepSampler, one: Density, rows: int, draws: int, step: int, work: Work) -> np.ndarray:
    """a - b in `draws` batches that the sampler draws: (draws,K). `work` gives their random numbers."""
    x0 = torch.zeros(rows, 1, 1, 1)
    hats = torch.from_numpy(one.hats)
    found = np.empty((draws, len(hats)))
    for r in range(draws):
        context = Context(Position(step), Streams(work.streams.key("analysis", rows, r) >> 31))
        t, weight = sampler.draw(x0, context)
        found[r] = (hats[:, t] @ weight.double()).numpy() / rows
    return found - one.mean


def informed(
    samplers: Mapping[str, TimestepSampler], models: list[Trained], batch_size: int, work: Work
) -> list[dict[str, TimestepSampler]]:
    """Copies of the samplers for each model; those that observe losses have observed the model's at every timestep."""

    def one(m: int, p: int) -> Mapping[str, np.ndarray]:
        return {"losses": _losses(models[m], p, batch_size, work)}

    pieces = work.map("losses", one, [(m, p) for m in range(len(models)) for p in range(PASSES)])
    made = []
    for m, model in enumerate(models):
        copies = {name: copy.deepcopy(sampler) for name, sampler in samplers.items()}
        for sampler in copies.values():
            sampler.setup(model.data.shape)
            for p, piece in enumerate(pieces[m * PASSES : (m + 1) * PASSES]):
                loss = torch.from_numpy(piece["losses"])
                record = StepRecord(torch.zeros(len(loss), 1, 1, 1), {}, torch.arange(len(loss)), loss, loss)
                sampler.observe(record, Context(Position(p), work.streams))
        made.append(copies)
    return made


@torch.no_grad()
def _losses(model: Trained, number: int, batch_size: int, work: Work) -> np.ndarray:
    """(T,) the native loss of a training image at each timestep, the images in turn and other ones in each pass."""
    steps = model.denoiser.num_timesteps
    available = min(PASSES * steps, len(model.data.source.train()))
    parts = []
    for t in torch.arange(steps, device=model.device).split(batch_size):
        row = (number * steps + t.cpu()) % available
        ids, inverse = row.unique(return_inverse=True)
        split = model.data.source.train()
        x0, cond = model.data.conditions.of_images(split, ids * len(split) // available)
        x0, cond = x0[inverse].to(model.device), {k: v[inverse].to(model.device) for k, v in cond.items()}
        eps = work.normal(tuple(x0.shape), number, int(t[0]))
        parts.append(model.denoiser.loss(x0, eps, t, **cond).native.double())
    return torch.cat(parts).cpu().numpy()
