"""Writes the values and the allocations of the crossed study from its runs.

    python -m experiments.crossed_measured RUNS NAME     NAME: digits or fashion_mnist

`NAME.values.csv` has the Fréchet distance of every run at every evaluation. `NAME.allocations.csv` has, for every run,
what it trained on: the share of the objective in each of 24 bins of ln SNR, as weight on the eps-loss,

    q(bin)  proportional to  sum of p_t E[weight] w_eps(t)  over the timesteps of the bin

averaged over the training. A run logs this sum for 20 ranges of t; inside a range it is spread in proportion to
w_eps(t), the weighting's part, which is known exactly. Runs that the files have already keep their rows, and others are
added: a study can be run in parts, on several machines.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.crossed import EDGES, FOLDER, Cell

COLUMNS = ("schedule", "prediction", "sampler", "weighting")


class RunOfStudy(NamedTuple):
    """A finished run: its cell and seed, its rows of the log, and its evaluations."""

    cell: Cell
    seed: int
    config: dict[str, Any]
    log: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def runs_of(folder: Path) -> Iterator[RunOfStudy]:
    """Every finished run below the folder."""
    for result in sorted(folder.glob("*/result.json")):
        if json.loads(result.read_text(encoding="utf-8")).get("status") != "done":
            continue
        record = json.loads((result.parent / "run.json").read_text(encoding="utf-8"))
        cell = Cell(*(record["choices"][group] for group in COLUMNS))
        log, evaluations = (_lines(result.parent / name) for name in ("metrics.jsonl", "evaluations.jsonl"))
        yield RunOfStudy(cell, record["config"]["seed"], record["config"], log, evaluations)


def allocation(run: RunOfStudy) -> np.ndarray:
    """Share of the objective in each bin of ln SNR, mean over the log's rows: (24,), with sum 1."""
    from omegaconf import OmegaConf

    from diffusion_lab.cli.run_parts import RunParts
    from diffusion_lab.diffusion import x0_weights

    parts = RunParts(OmegaConf.create(run.config))
    schedule = parts["schedule"]
    weight = (x0_weights(schedule, parts["prediction"], parts["weighting"]) / schedule.snr).numpy()
    objective = np.mean([row["sampler/objective"] for row in run.log if "sampler/objective" in row], axis=0)
    ranges = np.arange(len(weight)) * len(objective) // len(weight)
    inside = weight / np.bincount(ranges, weight)[ranges]
    at = np.clip(np.searchsorted(EDGES, schedule.log_snr.numpy()) - 1, 0, len(EDGES) - 2)
    return np.bincount(at, objective[ranges] * inside, minlength=len(EDGES) - 1)


def main(arguments: list[str]) -> int:
    """Write both files; returns 0."""
    runs, name = Path(arguments[0]), arguments[1]
    values, shares = [], []
    for run in runs_of(runs):
        key = [*run.cell, str(run.seed)]
        shares.append([*key, *(f"{share:.4g}" for share in allocation(run))])
        values += [[*key, str(line["step"]), repr(line["value"])] for line in run.evaluations]
    FOLDER.mkdir(exist_ok=True)
    add(FOLDER / f"{name}.values.csv", [*COLUMNS, "seed", "step", "value"], 6, values)
    bins = [f"{(a + b) / 2:g}" for a, b in zip(EDGES[:-1], EDGES[1:], strict=True)]
    add(FOLDER / f"{name}.allocations.csv", [*COLUMNS, "seed", *bins], 5, shares)
    return 0


def add(path: Path, head: list[str], keys: int, rows: list[list[str]]) -> None:
    """Write the rows and those that the file has of other runs, sorted; the first `keys` columns name a row."""
    known = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:] if path.exists() else []
    merged = {tuple(row[:keys]): row for row in [*rows, *known]}
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *(merged[key] for key in sorted(merged))])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
