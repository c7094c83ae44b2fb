"""Every curve of every study in one table, `curves.npz`: see README.md beside this file."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

PATH = Path(__file__).with_name("curves.npz")


class Curve(NamedTuple):
    """The values of one metric during one training.

    Attributes:
        study: e.g. "schedule_by_sampler/digits"; of a paper's table "adaptive_beta/table1".
        table: what is compared within a study: rows of one `table` have equal data, budget and evaluation; "" where
            the study has one only.
        row: the method, as its table names it.
        seed: of the training; equal seeds of a table have equal images, noise, initial weights and order.
        metric: e.g. "fd2k_digits".
        samples: of each value; 0 where nothing is sampled.
        latents: "by seed", "common" to all seeds, "of another seed" (the study of pairing, where a table's name says
            which seed each source has), or "" where nothing is sampled.
        run: folder, which ends in the first 8 digits of the configuration's hash; "" where it was not recorded.
        seconds: of the training; NaN where they were not recorded.
        steps: optimizer steps of the values, ascending: (n,) int64.
        values: (n,) float64.
    """

    study: str
    table: str
    row: str
    seed: int
    metric: str
    samples: int
    latents: str
    run: str
    seconds: float
    steps: np.ndarray
    values: np.ndarray


def curves(path: Path = PATH) -> list[Curve]:
    """All curves, sorted by study, table, row, metric, solver's run and seed."""
    with np.load(path) as file:
        facts = [file[name].tolist() for name in Curve._fields[:-2]]
        ends = np.cumsum(file["lengths"])[:-1]
        points = [np.split(file[name], ends) for name in ("steps", "values")]
    return [Curve(*one) for one in zip(*facts, *points, strict=True)]
