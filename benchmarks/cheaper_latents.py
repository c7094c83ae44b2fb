"""Latents of other kinds, and how much the Fréchet distance of a model varies on them: the first part of cheaper.md."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diffusion_lab import load_run
from diffusion_lab.data import to_uint8
from diffusion_lab.metrics import Statistics, extract, frechet_from_statistics, statistics
from diffusion_lab.solvers import DDIM
from diffusion_lab.training import TrainedModel

STEPS, SIZES = 10, (512, 1024, 2048)
SETS, ETAS = 20, (0.0, 1.0)
Measurement = tuple[str, float, int, list[float]]  # of a set: kind of latents, eta, number of the model, logarithms
Values = dict[tuple[str, float, int], np.ndarray]  # with the size: logarithms (sets, places, models)


def pseudo_random(seed: int, count: int, dim: int) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def antithetic(seed: int, count: int, dim: int) -> Tensor:
    z = pseudo_random(seed, count // 2, dim)
    return torch.stack([z, -z], 1).flatten(0, 1)


def sobol(seed: int, count: int, dim: int) -> Tensor:
    u = torch.quasirandom.SobolEngine(dim, scramble=True, seed=seed).draw(count, dtype=torch.float64)
    return torch.special.ndtri(u + 2.0**-31).float()  # u is a multiple of 2^-30 in [0, 1)


LATENTS: dict[str, Callable[[int, int, int], Tensor]] = {
    "pseudo-random": pseudo_random,
    "antithetic": antithetic,
    "Sobol": sobol,
}


def samples(run: TrainedModel, z: Tensor, eta: float) -> Tensor:
    """The images (n,C,H,W) uint8 of latents z (n,D): x_T, and the noise of each step if eta > 0."""
    rows = z.unflatten(1, (-1, *run.data.source.shape))

    def some(part: Tensor) -> Tensor:
        images = DDIM(STEPS, eta)(run.module, part[:, 0], noise=lambda k, like: part[:, k + 1].to(like))
        return to_uint8(images)

    return torch.cat([some(part) for part in rows.split(512)])


def distances(run: TrainedModel, images: Tensor, reference: Statistics) -> list[float]:
    """Logarithms of the Fréchet distances of the blocks of a set, smallest blocks first."""
    features = extract(run.data.features, images).features
    blocks = [block for size in SIZES for block in features.split(size)]
    return [math.log(frechet_from_statistics(statistics(block), reference)) for block in blocks]


def measured(runs: Sequence[TrainedModel], kept: Path) -> Iterator[Measurement]:
    """Every set; those that `kept` has are not measured again."""
    source, extractor = runs[0].data.source, runs[0].data.features
    extractor.prepare("cpu")
    reference = statistics(extract(extractor, source.train().take(range(len(source.train())))).features)
    pixels = math.prod(source.shape)
    found = {}
    if kept.is_file():
        with open(kept, newline="", encoding="utf-8") as file:
            found = {tuple(line[:4]): [float(value) for value in line[4:]] for line in csv.reader(file)}
    with open(kept, "a", newline="", encoding="utf-8") as file:
        for number in range(SETS):
            for eta in ETAS:
                for kind, latents in LATENTS.items():
                    z = latents(number, SIZES[-1], pixels * (1 + STEPS * (eta > 0)))
                    for model, run in enumerate(runs):
                        key = (run.folder.name, kind, str(eta), str(number))
                        if key not in found:
                            found[key] = distances(run, samples(run, z, eta), reference)
                            csv.writer(file).writerow([*key, *found[key]])
                            file.flush()
                        yield kind, eta, model, found[key]
            print(f"{source.name}: set {number + 1}, {time.process_time():.0f} s of CPU", flush=True)


def blocks_of(measurements: Iterable[Measurement]) -> Values:
    """All logarithms, by kind, eta and size."""
    rows = sorted(measurements, key=lambda row: row[:3])  # stable: sets in their order
    found: Values = {}
    for (kind, eta), own in groupby(rows, key=lambda row: row[:2]):
        models = [[values for *_, values in one] for _, one in groupby(own, key=lambda row: row[2])]
        y, start = np.array(models).transpose(1, 2, 0), 0
        for size in SIZES:
            count = SIZES[-1] // size
            found[kind, eta, size] = y[:, start : start + count]
            start += count
    return found


def variance(y: np.ndarray) -> float:
    """Of logarithms (sets, places, ..) over sets, mean over the rest."""
    return float(y.var(0, ddof=1).mean())


def compared(y: np.ndarray, usual: np.ndarray) -> str:
    """Logarithms (sets, places, models or 1) beside those with pseudo-random latents: variance and shift."""
    random = np.random.default_rng(0)

    def again(x: np.ndarray) -> float:
        return variance(x[random.integers(len(x), size=len(x))])

    low, high = np.quantile([again(y) / again(usual) for _ in range(2_000)], (0.025, 0.975))
    means = [x.mean((1, 2)) for x in (y, usual)]
    error = math.sqrt(sum(mean.var(ddof=1) / len(mean) for mean in means))
    shift = means[0].mean() - means[1].mean()
    return f"{variance(y) / variance(usual):.2f} [{low:.2f}, {high:.2f}] | {shift:+.3f} ± {error:.3f}"


def table(values: Values) -> Iterator[str]:
    """One line for each eta, number of samples and kind of latents."""
    yield "| eta | samples | latents | sd of ln FD | variance | shift | sd of ln ratio | variance | shift |"
    yield "|---:|---:|---|---:|---|---|---:|---|---|"
    for kind, eta, size in sorted(values, key=lambda key: (key[1:], list(LATENTS).index(key[0]))):
        cells = []
        for part in (lambda y: y, lambda y: y[..., :1] - y[..., 1:]):
            own, usual = part(values[kind, eta, size]), part(values["pseudo-random", eta, size])
            beside = "1 | " if kind == "pseudo-random" else compared(own, usual)
            cells.append(f"{math.sqrt(variance(own)):.4f} | {beside}")
        yield f"| {eta:g} | {size:,} | {kind} | {' | '.join(cells)} |"


def latents_part(folders: Sequence[Path]) -> Iterator[str]:
    """A table for each data set."""
    runs = [load_run(folder) for folder in folders]
    for (name, shape), own in groupby(runs, key=lambda run: (run.data.source.name, tuple(run.data.source.shape))):
        pair = list(own)
        values = blocks_of(measured(pair, pair[0].folder.parent / "cheaper.csv"))
        sets = len(values["pseudo-random", 0.0, SIZES[0]])
        yield f"{name}, {' x '.join(map(str, shape))}, {math.prod(shape)} dimensions, {sets} sets, means of ln FD at"
        yield (
            f"{SIZES[-1]:,} samples and eta = 0: "
            + ", ".join(f"{mean:.3f}" for mean in values["pseudo-random", 0.0, SIZES[-1]].mean((0, 1)))
            + "."
        )
        yield ""
        yield from table(values)
        yield ""
