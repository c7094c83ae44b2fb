"""The variance of a batch's gradient, from a sampler's draws and a table of gradients (`rows.py`).

The mean gradient is linear between the K points of a grid, mu(t) = sum_k h_k(t) mu_k. Given the timesteps of a batch of
B rows with weights w_i, the expected batch gradient is sum_k a_k mu_k with the *coverage* a_k = 1/B sum_i w_i h_k(t_i),
of expectation b_k = sum_t p_t w_t h_k(t). So

    Var_t E[gradient | t] = sum_kl Cov(a)_kl  mu_k . mu_l

where Cov(a) depends on the sampler and B alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Work
from diffusion_lab.analyses.gradients.rows import GradientParts, GradientTable, jackknife
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position, StepRecord, TimestepSampler
from diffusion_lab.timesteps.grid import interpolated
from diffusion_lab.training import TrainedDiffusion

PASSES = 10  # losses of every timestep, the history of `LossSecondMoment`


class SamplerDraw(NamedTuple):
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


def sampler_draw(sampler: TimestepSampler, step: int, grid: Tensor) -> SamplerDraw:
    """Of a sampler at an optimizer step."""
    t = torch.arange(sampler.num_timesteps)
    hats = interpolated(torch.eye(len(grid), dtype=torch.float64), grid)
    return SamplerDraw(sampler.probabilities(step).numpy(), sampler.weight(t, step).double().numpy(), hats.numpy())


def draws_independently(sampler: TimestepSampler) -> bool:
    """Whether the rows of a batch are independent, so that Cov(a) is known without drawing."""
    return type(sampler).draw is TimestepSampler.draw


def coverages(sampler: TimestepSampler, one: SamplerDraw, rows: int, draws: int, step: int, work: Work) -> np.ndarray:
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
    samplers: Mapping[str, TimestepSampler], models: list[TrainedDiffusion], batch_size: int, work: Work
) -> list[dict[str, TimestepSampler]]:
    """Copies of the samplers for each model; those that observe losses have observed the model's at every timestep.

    Raises:
        ValueError: a sampler keeps what it has observed and draws as before, since it learns at longer intervals.
    """

    def one(m: int, p: int) -> Mapping[str, np.ndarray]:
        return {"losses": _losses(models[m], p, batch_size, work)}

    made = []
    for model, pieces in zip(models, work.nested("losses", one, len(models), PASSES), strict=True):
        copies = {name: copy.deepcopy(sampler) for name, sampler in samplers.items()}
        for name, sampler in copies.items():
            sampler.setup(model.data.shape)
            before, kept = sampler.probabilities(model.step).clone(), copy.deepcopy(sampler.state_dict())
            for p, piece in enumerate(pieces):
                loss = torch.from_numpy(piece["losses"])
                record = StepRecord(torch.zeros(len(loss), 1, 1, 1), {}, torch.arange(len(loss)), loss, loss)
                sampler.observe(record, Context(Position(p), work.streams))
            if _changed(sampler.state_dict(), kept) and torch.equal(sampler.probabilities(model.step), before):
                raise ValueError(
                    f"analysis.samplers.{name} must learn from {PASSES} losses at each timestep, and draws as before: "
                    "let it learn more often, by update_every=1 of equal_loss_slots, or every=1 and warmup_steps=0 of "
                    "infonoise"
                )
        made.append(copies)
    return made


def _changed(state: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    both = zip(state.values(), before.values(), strict=True)
    return not all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in both)


@torch.no_grad()
def _losses(model: TrainedDiffusion, number: int, batch_size: int, work: Work) -> np.ndarray:
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


def numbers(
    table: GradientTable,
    densities: Mapping[str, SamplerDraw],
    coverages: Mapping[str, Mapping[int, np.ndarray]],
    batch_sizes: Sequence[int],
) -> dict[str, np.ndarray]:
    """The arrays of `BatchNoise` for one model, with S samplers and R batch sizes B.

    `coverages` has the simulated ones of each sampler by batch size, none where its draws are independent.
    """
    whole, without = table.parts()
    first = next(iter(densities.values()))
    uniform = first._replace(p=np.full_like(first.p, 1 / len(first.p)), weight=np.ones_like(first.p))
    found = [_of_sampler(whole, without, densities[name], coverages[name], batch_sizes) for name in densities]
    data = {key: np.stack([one[key] for one in found]) for key in found[0]}
    base = _of_sampler(whole, without, uniform, {}, batch_sizes)
    same = np.array([np.allclose(one.effective, uniform.effective, rtol=1e-5) for one in densities.values()])
    data |= _relative(data, base, same) | {"same": same}
    shares = [base[key][0] / base[key][0].sum(0) for key in ("parts", "each_parts")]  # of any batch size
    data |= {"share": shares[0], "share_error": jackknife(shares[1])}
    data["probability"] = np.stack([one.p for one in densities.values()])
    return {key: value for key, value in data.items() if not key.startswith("each_")}


def _of_sampler(
    whole: GradientParts,
    without: GradientParts,
    one: SamplerDraw,
    coverages: Mapping[int, np.ndarray],
    batch_sizes: Sequence[int],
) -> dict[str, np.ndarray]:
    """Parts (R,3) and squared mean (), with their errors, and without each image (R,3,n), (n,)."""
    parts, each, drawn = [], [], []
    for rows in batch_sizes:
        given = coverages.get(rows)
        covariance = one.independent() / rows if given is None else given.T @ given / len(given)
        parts.append(_parts(whole, one, covariance, rows))
        each.append(_parts(without, one, covariance, rows))
        values = np.zeros(1) if given is None else np.einsum("rk,kl,rl->r", given, whole.gram, given)
        drawn.append(values.std() / len(values) ** 0.5)  # error of a mean over draws
    outer = np.outer(one.mean, one.mean)
    squared, each_squared = _inner(outer, whole.gram), _inner(outer, without.gram)
    found = {"parts": np.stack(parts), "each_parts": np.stack(each), "each_squared_mean": each_squared}
    errors = jackknife(found["each_parts"])
    errors[:, 0] = np.hypot(errors[:, 0], drawn)
    found |= {"parts_error": errors, "each_drawn": np.array(drawn)}
    return found | {"squared_mean": squared, "squared_mean_error": jackknife(each_squared)}


def _parts(of: GradientParts, one: SamplerDraw, covariance: np.ndarray, rows: int) -> np.ndarray:
    """(3,...): timesteps, noise, images."""
    return np.stack([_inner(covariance, of.gram), of.noise @ one.square / rows, of.images @ one.square / rows])


def _inner(a: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """sum_kl a_kl gram_kl: (K,K), (...,K,K) -> (...)."""
    return np.einsum("kl,...kl->...", a, gram)


def _relative(
    data: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], same: np.ndarray
) -> dict[str, np.ndarray]:
    """(S,R): Var G / |E G|^2 relative to that of uniform draws; without |E G|^2 for samplers with the same E G."""

    def ratio(parts: str, squared: str) -> np.ndarray:
        total = data[parts].sum(2) / base[parts].sum(1)
        means = base[squared] / data[squared]
        return total * np.where(same.reshape(-1, *[1] * (means.ndim - 1)), 1.0, means)[:, None]

    value, each = ratio("parts", "squared_mean"), ratio("each_parts", "each_squared_mean")
    simulated = value * data["each_drawn"] / data["parts"].sum(2)
    distinct = data["squared_mean"] > 2 * data["squared_mean_error"]
    known = same | (distinct & (base["squared_mean"] > 2 * base["squared_mean_error"]))
    error = np.hypot(jackknife(each), simulated)
    return {
        "relative": np.where(known[:, None], value, np.nan),
        "relative_error": np.where(known[:, None], error, np.nan),
    }
