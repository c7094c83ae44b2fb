"""Collects the archive from the committed files: `python -m experiments.archive` writes curves.npz.

A file of values by seed is one of five kinds:

    results/mini/TABLE/per_seed.csv    row, column, cell, step, seed, quantity, value, run, latents    a paper's table
    NAME.values.csv                    schedule, prediction, sampler, weighting, seed, step, value     the crossed study
    NAME.per_seed.csv                  row, run, seed, metric, step, value, protocol                   values at the end
    NAME.curves.csv                    run, network, step, val_loss                                    losses
    NAME.sources.csv                   method, init, order, noise, timesteps, latents, seed, step, value, run    pairing

What the second and the third do not say, the metric, the number of samples and the last step (of files from before
there was a column for it), is that of the preset by whose command they were made: `FOLDER_NAME`, else `FOLDER`, else
`FOLDER_digits` in conf/experiment. Tables of scale=smoke are left out: they only check the pipeline.
`seconds.csv` has the seconds of runs, where they are known.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.question import question_of
from diffusion_lab.tables.values import BY_SEED, COMMON, read_per_seed
from experiments.archive import PATH, Curve
from experiments.crossed_measured import COLUMNS
from experiments.pairing_page import METRIC, SOURCES

FOLDER = Path(__file__).resolve().parents[1]
SECONDS = PATH.with_name("seconds.csv")  # run, seconds
OTHER_SEED = "of another seed"  # latents of a study that asks what these are worth
TIMES = ("seconds", "images_per_second")  # metrics that are facts of a run
KINDS = ("*/results/mini/*/per_seed.csv", "*/*.values.csv", "*/*.per_seed.csv", "*.curves.csv", "*/*.sources.csv")


class Point(NamedTuple):
    """One value; the fields of `Curve` but for `seconds`."""

    study: str
    table: str
    row: str
    seed: int
    metric: str
    samples: int
    latents: str
    run: str
    step: int
    value: float


class Preset(NamedTuple):
    """What a preset of conf/experiment says of its values."""

    metric: str
    samples: int
    steps: int


def files() -> Iterator[Path]:
    """Every file of values by seed that is collected."""
    for kind in KINDS:
        yield from sorted(FOLDER.glob(kind))


def points(path: Path) -> Iterator[Point]:
    """The values of a file."""
    text = path.read_text(encoding="utf-8")
    if path.name == "per_seed.csv":
        return _of_table(path, text)
    lines = list(csv.DictReader(text.splitlines()))
    if "val_loss" in lines[0]:
        return _of_losses(path, lines)
    if "timesteps" in lines[0]:
        return _of_sources(path, lines)
    return _of_cross(path, lines) if "schedule" in lines[0] else _at_the_end(path, lines)


def _of_table(path: Path, text: str) -> Iterator[Point]:
    study = f"{path.parents[3].name}/{path.parent.name}"
    for one in read_per_seed(text):
        samples = samples_of(one.quantity)
        latents = one.latents if samples else ""
        yield Point(study, one.column, one.row, one.seed, one.quantity, samples, latents, one.run, one.step, one.value)


def _of_cross(path: Path, lines: list[dict[str, str]]) -> Iterator[Point]:
    name = path.name.partition(".")[0]
    preset, study = _preset(path.parent.name, name), f"{path.parent.name}/{name}"
    for one in lines:
        row, seed, step = " ".join(one[key] for key in COLUMNS), int(one["seed"]), int(one["step"])
        yield Point(study, "", row, seed, preset.metric, preset.samples, COMMON, "", step, float(one["value"]))


def _at_the_end(path: Path, lines: list[dict[str, str]]) -> Iterator[Point]:
    name = path.name.removesuffix(".per_seed.csv")  # which may have a number, as lr_0.005
    study = f"{path.parent.name}/{name}"
    said = [int(one["step"]) for one in lines if one.get("step")]
    last = max(said) if said else _preset(path.parent.name, name).steps
    for one in lines:
        protocol: dict[str, Any] = json.loads(one["protocol"] or "{}")
        latents = {"the run's": BY_SEED, 0: COMMON, None: ""}[protocol.get("seed")]
        samples = protocol.get("samples", 0)
        facts = (study, one.get("section", ""), one["row"], int(one["seed"]), one["metric"], samples, latents)
        yield Point(*facts, one["run"], int(one.get("step") or last), float(one["value"]))


def _of_losses(path: Path, lines: list[dict[str, str]]) -> Iterator[Point]:
    for one in lines:
        method, _, seed = one["run"].rpartition("-")[0].rpartition("-s")
        facts = (path.name.partition(".")[0], one["network"], method, int(seed), "val/loss", 0, "", one["run"])
        yield Point(*facts, int(one["step"]), float(one["val_loss"]))


def _of_sources(path: Path, lines: list[dict[str, str]]) -> Iterator[Point]:
    """A table for each choice between the two seeds of each source, which the runs of a table and seed share."""
    study, samples = f"{path.parent.name}/{path.name.partition('.')[0]}", samples_of(METRIC)
    for one in lines:
        table = " ".join(f"{source} {one[source]}" for source in SOURCES)
        latents = BY_SEED if one["latents"] == "0" else OTHER_SEED
        facts = (study, table, one["method"], int(one["seed"]), METRIC, samples, latents, one["run"])
        yield Point(*facts, int(one["step"]), float(one["value"]))


@cache
def _preset(folder: str, name: str) -> Preset:
    known = {path.stem for path in (conf_dir() / "experiment").glob("*.yaml")}
    preset = next(one for one in (f"{folder}_{name}", folder, f"{folder}_digits") if one in known)
    cfg = compose_train([f"experiment={preset}"], Path("runs/run"))
    question = question_of([cfg])
    return Preset(question["metric"], question["samples"], cfg.max_steps)


def samples_of(metric: str) -> int:
    """The number of samples in a metric's name: 2000 of fd2k_digits, 512 of fd512_digits; 0 without one."""
    found = re.fullmatch(r"[a-z_]+?(\d+)(k?)(_\w+)?", metric)
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def collected() -> list[Curve]:
    """The curves of all files, sorted.

    Raises:
        ValueError: two files have different values of one curve and step.
    """
    with open(SECONDS, newline="", encoding="utf-8") as file:
        known = {line["run"]: float(line["seconds"]) for line in csv.DictReader(file)}
    found: dict[tuple[Any, ...], dict[int, float]] = {}
    for path in files():
        for one in points(path):
            if one.metric in TIMES:
                known |= {one.run: one.value} if one.metric == "seconds" else {}
                continue
            curve = found.setdefault(one[:-2], {})
            if curve.setdefault(one.step, one.value) != one.value:
                raise ValueError(f"{path}: {one} is another value than {curve[one.step]} of the same curve and step")
    made = []
    for facts, by_step in sorted(found.items()):
        steps = sorted(by_step)
        values = np.array([by_step[step] for step in steps])
        made.append(Curve(*facts, known.get(facts[-1], math.nan), np.array(steps), values))
    return made


def write(made: list[Curve], path: Path = PATH) -> None:
    """The table: a line of each fact for each curve, `lengths` of the curves, and all their steps and values."""
    facts = {name: np.array([getattr(curve, name) for curve in made]) for name in Curve._fields[:-2]}
    points = {name: np.concatenate([getattr(curve, name) for curve in made]) for name in ("steps", "values")}
    lengths = np.array([len(curve.steps) for curve in made])
    np.savez_compressed(path, lengths=lengths, **facts, **points)


def main() -> None:
    made = collected()
    write(made)
    values, several = sum(len(curve.steps) for curve in made), sum(len(curve.steps) > 1 for curve in made)
    studies = len({curve.study for curve in made})
    print(f"{PATH}: {len(made):,} curves, {several:,} of several values; {values:,} values of {studies} studies")


if __name__ == "__main__":
    main()
