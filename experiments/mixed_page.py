"""What the study of mixed predictions says of its committed values (experiments/mixed).

    python -m experiments.mixed_page RUNS             writes mixed/digits.heads.csv from finished runs
    python -m experiments.mixed_page RUNS --selected  measures minima with x0 or v alone generating, and writes
                                                      mixed/digits_selected.per_seed.csv

y[r, s] is the logarithm of the Fréchet distance of row r and seed s. A comparison of two sets of rows is the mean over
seeds of

    d_s = mean of y[r, s] over the one set - mean of y[r, s] over the other,

with Student's interval. A head's share of the gates in a range of noise is that of its last 100 updates or so, as a run
logs it (`prediction/head_*`, `diffusion/mixed_prediction.py`), for 20 equal ranges of atan(sigma/alpha), the least
noise first; its weight in generation is `prediction/weight_*`.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from matplotlib.figure import Figure

from diffusion_lab.files import write_whole
from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.markup import csv_text
from diffusion_lab.reports import Run, read_runs, sections_of
from diffusion_lab.reports.comparison.cells import with_interval
from diffusion_lab.reports.figures.ratios import of_what, sides
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS
from diffusion_lab.tables.curves import interval_figure
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import MARGIN, Verdict, judge
from experiments.study_cells import rows, word
from experiments.study_figures import line

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path(__file__).resolve().parent / "mixed"
VALUES = FOLDER / "digits.heads.csv"
METRIC, RATE = "fd2k_digits", 0.01  # metric, and the learning rate of the study
HEADS = ("x0", "v", "eps")
COLUMNS = ("row", "seed", "head", "shares", "weights")
SELECTED = {"native": "x0", "x0": "v"}  # space of the losses -> the head that a minimum by batch selects
STARVES = 0.05
V = "uniform-v prediction=v"  # has the objective of v with weight 1 too
SINGLES = {
    "unit": {"x0": "uniform-x0", "v": V, "eps": "uniform"},
    "v": {"v": V, "x0": "uniform-x0-v", "eps": "uniform-v prediction=eps weighting=v"},
}
BASE = {"unit": "x0", "v": "v"}
COMBINED = "combined"
MIXED = {"unit": "uniform-mixed ", "v": "uniform-mixed-v "}
GRAINS = {"sample": "image", "per_batch": "batch", "per_bin": "noise range", "per_pixel": "pixel"}
RULES = {"min": "minimum", "relative_soft_min": "soft minimum", "learned_gate": "learned gate", "warmup_min": "minimum"}
WARMUP = ", from the mean in 200 steps"
MEAN = {"best": "no selection, best head", "least_squares": "no selection, least squares"}


def table(objective: str) -> dict[str, dict[int, float]]:
    """Name -> seed -> distance of the rows with weight 1 (`unit`) or the objective of v (`v`), the baseline first."""
    found = rows(FOLDER / "digits.per_seed.csv", METRIC)
    named = {name: found[label] for name, label in SINGLES[objective].items()}
    named |= {COMBINED: found["uniform-combined"]} if objective == "unit" else {}
    return named | {_name(label): own for label, own in found.items() if label.startswith(MIXED[objective])}


def _name(label: str) -> str:
    """`minimum by batch (native)` of a row of several heads: the rule, for what it selects, and the losses' space."""
    said = dict(part.split("=") for part in label.split()[1:])
    if said["reduction"] == "mean_of_heads":
        return MEAN[said.get("generation_head", "best")]
    if said["reduction"] == "learned_gate":  # which has ranges of its own
        said["granularity"] = "per_bin"
    late = WARMUP if said["reduction"] == "warmup_min" else ""
    return f"{RULES[said['reduction']]} by {GRAINS[said['granularity']]} ({said['space']}){late}"


def minima(objective: str, rule: str = "minimum") -> list[str]:
    """The names of the 8 minima, or soft minima."""
    return [f"{rule} by {grain} ({space})" for space in ("x0", "native") for grain in GRAINS.values()]


def verdicts(objective: str) -> dict[str, Verdict | None]:
    """Name -> verdict, all rows decided together against the baseline."""
    found = table(objective)
    return dict(zip(found, judge(list(found.values()), "ratio", rising=False), strict=True))


def compared(found: dict[str, dict[int, float]], some: Sequence[str], others: Sequence[str]) -> Interval:
    """Of the logarithm of the ratio of two sets' geometric means, over the seeds that all rows have."""
    seeds = sorted(set.intersection(*(set(found[name]) for name in (*some, *others))))
    mean = lambda names, seed: fmean(math.log(found[name][seed]) for name in names)  # noqa: E731
    return mean_interval([mean(some, seed) - mean(others, seed) for seed in seeds])


def best_single(objective: str) -> tuple[str, dict[str, Verdict]]:
    """The single prediction with the smallest geometric mean, and each row of several heads against it, all rows
    decided together."""
    found = table(objective)
    single = min(SINGLES[objective], key=lambda name: fmean(map(math.log, found[name].values())))
    others = {name: own for name, own in found.items() if name != single}
    judged = judge([found[single], *others.values()], "ratio", rising=False)[1:]
    several = zip(others, judged, strict=True)
    return single, {name: one for name, one in several if one is not None and name not in SINGLES[objective]}


def predictions() -> str:
    """The numbers of the predictions but of starvation."""
    unit, v = table("unit"), table("v")
    means = list(MEAN.values())
    by = lambda grain: [name for name in minima("unit") if f"by {grain} (" in name]  # noqa: E731
    coarse = [name for name in minima("unit") if name not in by("pixel")]
    softly = lambda names: [f"soft {name}" for name in names]  # noqa: E731
    kinds = [
        ("3", "8 soft minima / 8 minima", compared(unit, softly(minima("unit")), minima("unit"))),
        ("3", "the 6 that are not by pixel, looked at afterwards", compared(unit, softly(coarse), coarse)),
        ("3", "the 2 by pixel, looked at afterwards", compared(unit, softly(by("pixel")), by("pixel"))),
        ("4", "2 minima by noise range / 2 by image", compared(unit, by("noise range"), by("image"))),
        ("5", "no selection: least squares / best head", compared(unit, means[1:], means[:1])),
        ("6", "no selection, best head / 8 minima", compared(unit, means[:1], minima("unit"))),
        ("6", "the same / the 6 that are not by pixel, looked at afterwards", compared(unit, means[:1], coarse)),
        ("7", "no selection, best head / 8 minima, with the objective of v", compared(v, means[:1], minima("v"))),
    ]
    lines = ["| no. | ratio | value | 95 % interval |", "| ---: | --- | ---: | ---: |"]
    for objective in SINGLES:
        single, found = best_single(objective)
        count = {say: sum(one.word == say for one in found.values()) for say in ("better", "worse")}
        least = min(found, key=lambda name: found[name].size)
        of = "weight 1" if objective == "unit" else "the objective of v"
        what = f"{of}: of {len(found)} rows of several heads, {count['better']} better and {count['worse']} worse than "
        size, ends = ratio_words(found[least])
        lines.append(f"| 1 | {what}{single}; the least: {least} | {size} | {ends} |")
    return "\n".join([*lines, *(f"| {k} | {what} | {' | '.join(_words(found))} |" for k, what, found in kinds)])


def every(objective: str) -> str:
    """The table of all rows with an objective."""
    lines = [f"| row | seeds | {METRIC} | ratio to {BASE[objective]} | 95 % interval | verdict |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | --- |")
    found = table(objective)
    for name, one in verdicts(objective).items():
        mean = with_interval(mean_interval(list(found[name].values())), 2)
        marked = "**{}**" if one is not None and one.decided else "{}"
        said = ["", "", ""] if one is None else [marked.format(text) for text in (*ratio_words(one), word(one))]
        lines.append(f"| {name} | {len(found[name])} | {mean} | {' | '.join(said)} |")
    return "\n".join(lines)


def rates() -> str:
    """The table of the single predictions at each learning rate, with weight 1: mean distance and interval."""
    tables = {RATE: rows(FOLDER / "digits.per_seed.csv", METRIC)}
    tables |= {
        float(path.name.removeprefix("lr_").removesuffix(".per_seed.csv")): rows(path, METRIC)
        for path in FOLDER.glob("lr_*.per_seed.csv")
    }
    singles = SINGLES["unit"].items()
    lines = [f"| learning rate | {' | '.join(name for name, _ in singles)} |", f"| ---: |{' ---: |' * len(singles)}"]
    for rate, found in sorted(tables.items()):
        labels = (label if label in found else "uniform-v" for _, label in singles)
        cells = [with_interval(mean_interval(list(found[label].values())), 2) for label in labels]
        lines.append(f"| {rate} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(objective: str) -> Figure:
    """The rows' ratios to the baseline, from the best to the worst."""
    found = sorted(((n, one) for n, one in verdicts(objective).items() if one is not None), key=lambda row: row[1].size)
    label = sides(of_what("ratio", METRIC, BASE[objective]), "lower")
    return interval_figure([line(name, one) for name, one in found], label, "ratio", MARGIN)


def collect(runs: Path) -> None:
    """Write the shares of all finished runs of several heads below a folder."""
    folder = read_runs(runs)
    done = [run for run in folder.runs if run.status == "done"]
    lines = [
        [group.label, run.seed, *shown]
        for section in sections_of(done, recorded=folder.questions)
        for group in section.groups
        for run in group.runs
        for shown in _shares(run)
    ]
    write_whole(VALUES, csv_text(COLUMNS, lines).encode())


def measure_selected(runs: Path) -> None:
    """Write the distances of finished minima with weight 1, but for those by pixel, when the head that is selected
    nearly everywhere generates at all noise levels, from the same latents. The runs are not written to."""
    folder, lines = read_runs(runs), []
    (section,) = sections_of([run for run in folder.runs if run.status == "done"], recorded=folder.questions)
    for group in section.groups:
        name = _name(group.label) if group.label.startswith(MIXED["unit"]) else ""
        if name not in minima("unit") or "pixel" in name:
            continue
        head = SELECTED[name.rpartition("(")[2].rstrip(")")]
        for run in group.runs:
            found = _with_head(run, HEADS.index(head))
            protocol = json.dumps(found["protocol"], sort_keys=True)
            lines.append([name, run.name, run.seed, METRIC, run.step, found["value"], protocol])
    columns = ("row", "run", "seed", "metric", "step", "value", "protocol")
    write_whole(FOLDER / "digits_selected.per_seed.csv", csv_text(columns, lines).encode())


def _with_head(run: Run, head: int) -> dict[str, Any]:
    """The evaluation of a copy of a run in which one head generates."""

    from diffusion_lab.cli.main import main
    from diffusion_lab.diffusion import BestHead

    def one(_: BestHead, q: Tensor, moments: Tensor, gate: Tensor | None) -> Tensor:
        weights = q.new_zeros(q.shape)
        weights[:, head] = 1
        return weights

    with tempfile.TemporaryDirectory() as place, patch.object(BestHead, "weights", one):
        copy = Path(shutil.copytree(run.folder, Path(place) / run.folder.name))
        if main(["evaluate", f"run={copy}", "metrics.names=[fid]", "metrics.num_samples=2000"]):
            raise ValueError(f"{run.folder} must be a run that can be evaluated; see what evaluate has said")
        return next(one for one in reversed(read_lines(copy / EVALUATIONS)) if one["name"] == METRIC)


def _shares(run: Run) -> Iterator[tuple[str, ...]]:
    """Each head, its shares and its weights, a word for each range; `nan` for a range that no image has reached."""
    for head in HEADS:
        both = [run.curve(f"prediction/{what}_{head}").values[-1:] for what in ("head", "weight")]
        if len(both[0]):
            yield head, *(" ".join(f"{one:.4g}" for own in last for one in own) for last in both)


def shares() -> dict[str, dict[str, np.ndarray]]:
    """Label -> head -> mean over seeds of its share in each range (ranges,)."""
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            of_head = found.setdefault(line["row"], {}).setdefault(line["head"], [])
            of_head.append(np.array(line["shares"].split(), dtype=float))
    return {row: {head: np.nanmean(own, 0) for head, own in heads.items()} for row, heads in found.items()}


def starvation(objective: str) -> str:
    """The table of the minima: mean share of each head over the ranges of noise, and in how many of them it starves."""
    titles = [text for head in HEADS for text in (head, "starves in")]
    lines = [f"| row | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}"]
    found = {_name(label): heads for label, heads in shares().items() if label.startswith(MIXED[objective])}
    for name in minima(objective):
        cells = []
        for head in HEADS:
            there = found[name][head]
            text = f"{100 * there.mean():.0f} %"
            cells += [f"**{text}**" if there.mean() < STARVES else text, f"{(there < STARVES).sum()} of {len(there)}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def generating() -> dict[str, str]:
    """Name -> the heads that generate in the range of least noise, with the number of seeds, of rows with weight 1."""
    found: dict[str, dict[str, float]] = {}
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["row"].startswith(MIXED["unit"]):
                of_row = found.setdefault(_name(line["row"]), dict.fromkeys(HEADS, 0.0))
                of_row[line["head"]] += float(line["weights"].split()[0])
    return {
        name: ", ".join(f"{head} {n:.0f}" for head, n in sorted(own.items(), key=lambda one: -one[1]) if n)
        for name, own in found.items()
    }


def selected() -> str:
    """The table of minima in which x0 or v alone generates: their ratio to that single prediction, as they were trained
    and so, with Student's interval of each, and the heads that generate at the least noise as they were trained."""
    alone, trained = table("unit"), rows(FOLDER / "digits_selected.per_seed.csv", METRIC)
    first = generating()
    titles = ("row", "at the least noise generates", "ratio to the prediction", "as trained", "95 % interval")
    lines = [f"| {' | '.join(titles)} | only its head generates | 95 % interval |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name, own in trained.items():
        head = SELECTED[name.rpartition("(")[2].rstrip(")")]
        both = [compared({"it": one, "alone": alone[head]}, ["it"], ["alone"]) for one in (alone[name], own)]
        lines.append(
            f"| {name} | {first[name]} | {head} | {' | '.join(cell for found in both for cell in _words(found))} |"
        )
    return "\n".join(lines)


def _words(found: Interval) -> tuple[str, str]:
    assert found.low is not None and found.high is not None
    low, high = (math.exp(end) for end in (found.low, found.high))
    return f"{math.exp(found.mean):.2f}", f"[{low:.2f}, {high:.2f}]"


PARTS = {"predictions": predictions, "every": every, "rates": rates, "starvation": starvation, "selected": selected}
FIGURES = {f"mixed/{objective}.svg": ("mixed/digits.per_seed.csv", partial(figure, objective)) for objective in SINGLES}


def main(words: list[str]) -> int:
    (measure_selected if "--selected" in words else collect)(Path(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
