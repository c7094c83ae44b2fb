"""From a table of gradients and the draws of samplers to the parts of the variance of a batch's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diffusion_lab.analyses.batch_draws import Density
from diffusion_lab.analyses.gradient_moments import jackknife
from diffusion_lab.analyses.gradient_table import Parts, Table


def numbers(
    table: Table,
    densities: Mapping[str, Density],
    coverages: Mapping[str, Mapping[int, np.ndarray]],
    batch_sizes: Sequence[int],
) -> dict[str, np.ndarray]:
    """The arrays of `BatchNoise` for one model, with S samplers and R batch sizes.

    Args:
        table: the measured gradients.
        densities: of each sampler.
        coverages: simulated coverages of each sampler by batch size; empty where its draws are independent.
        batch_sizes: B.
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
    whole: Parts, without: Parts, one: Density, coverages: Mapping[int, np.ndarray], batch_sizes: Sequence[int]
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


def _parts(of: Parts, one: Density, covariance: np.ndarray, rows: int) -> np.ndarray:
    """(3,...): timesteps, noise, images."""
    return np.stack(
        [_inner(covariance, of.gram), of.noise @ one.square / rows, of.images @ one.square / rows],
    )


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
