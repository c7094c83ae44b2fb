"""The Fréchet distance of two feature sets: torch-fidelity's and SciPy's way over ours.

Time of `scipy.linalg.sqrtm` of the product of two covariances, as in the published FID code, and of the eigenvalues
that torch-fidelity computes of it, over that of `frechet_from_statistics`, with Inception's D = 2048 and covariances of
4608 correlated rows; and the relative difference between our value and SciPy's. CPU time of the process, one thread,
one turn of each of theirs, three of ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.linalg
import torch
from torch_fidelity.metric_fid import fid_statistics_to_metric

from benchmarks.paired import Ratio, interleaved
from benchmarks.table import Line, at_least, at_most
from diffusion_lab.metrics import Statistics, frechet_from_statistics, statistics

DIM, ROWS = 2048, 4608


def lines() -> Iterator[Line]:
    a, b = _statistics(0), _statistics(1)
    values: dict[str, float] = {}

    def by_sqrtm() -> None:
        root = scipy.linalg.sqrtm(a.sigma @ b.sigma).real
        values["sqrtm"] = float(np.square(a.mu - b.mu).sum() + np.trace(a.sigma + b.sigma - 2 * root))

    def by_eigenvalues() -> None:
        statistics = a._asdict(), b._asdict()
        values["eigenvalues"] = fid_statistics_to_metric(*statistics, verbose=False)["frechet_inception_distance"]

    def ours() -> None:
        values["ours"] = frechet_from_statistics(a, b)

    frechet_from_statistics(_statistics(2, 64), _statistics(3, 64))  # loads the libraries
    mine = interleaved({"ours": ours}, 3, clock=time.process_time)["ours"]
    theirs = interleaved({"sqrtm": by_sqrtm, "eigenvalues": by_eigenvalues}, 1, warmup=0, clock=time.process_time)
    yield Line("scipy.linalg.sqrtm", Ratio.of([theirs["sqrtm"][0] / seconds for seconds in mine]), at_least(10))
    yield Line("torch-fidelity", Ratio.of([theirs["eigenvalues"][0] / seconds for seconds in mine]))
    yield Line("difference", Ratio.of([1e6 * abs(values["ours"] / values["sqrtm"] - 1)]), at_most(1), "ppm")


def _statistics(seed: int, dim: int = DIM) -> Statistics:
    """Statistics of ReLUs of a random mixture, which are like features non-negative, correlated and of various
    scales."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dim, dim, generator=torch.Generator().manual_seed(99)) / dim**0.5
    scales = torch.logspace(0, -2, dim)
    rows = torch.randn(ROWS, dim, generator=generator) * scales + 0.1 * seed
    return statistics((rows @ mixing).relu())
