"""What must be paired: the study's values, and what its page says of them (experiments/pairing).

    python -m experiments.pairing_page RUNS    measure the second latents of finished runs that lack them, and write
                                               pairing/digits.sources.csv

y[m, w, o, n, t, l, s] is the logarithm of the Fréchet distance of method m and block s, whose five sources of
randomness, initial weights, order, noise, timesteps and latents, have one of two seeds each (s and 100 + s). Of two
methods whose runs share the sources S and have different seeds of all others,

    V(S) = Var(y[i, a] - y[j, b]),  a and b equal in S and different elsewhere,

is the variance over blocks, its mean over all 32 a and all pairs of methods. The intervals of ratios of V are those of
Student's t for the mean of the jackknife's pseudo-values of their logarithms, leaving one block out.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diffusion_lab.files import write_whole
from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.markup import csv_text
from diffusion_lab.plotting import line_style, log_axis, panel_title, panels
from diffusion_lab.reports import Run, read_runs
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS
from diffusion_lab.verdicts import MARGIN, seeds_needed

FOLDER = Path(__file__).resolve().parent / "pairing"
VALUES = FOLDER / "digits.sources.csv"
METHODS = ("uniform", "logit_normal", "speed")
SOURCES = {  # name -> key of its seed
    "init": "stream_seeds.init",
    "order": "dataset.seed",
    "noise": "stream_seeds.noise",
    "timesteps": "stream_seeds.timesteps",
    "latents": "metrics.seed",
}
METRIC, LAST, OTHER = "fd1k_digits", 400, 100  # name, last step, and what is added to a seed for the other one
COLUMNS = ("method", *SOURCES, "seed", "step", "value", "run")
ALL = frozenset(SOURCES)
Shared = frozenset[str]


def collect(runs: Path) -> None:
    """Write the values of all finished runs below a folder."""
    lines = [line for run in read_runs(runs).runs if run.status == "done" for line in _lines(run)]
    write_whole(
        VALUES, csv_text(COLUMNS, sorted(lines, key=lambda line: [str(line[-1]), *map(int, line[5:8])])).encode()
    )


def _lines(run: Run) -> Iterator[list[object]]:
    """A line for each snapshot, and one for the second latents."""
    config = run.config
    own = {"order": config["dataset"]["seed"], **(config.get("stream_seeds") or {})}
    levels = [int(own[source] not in (None, run.seed)) for source in SOURCES if source != "latents"]
    name = config["sampler"]["_target_"].rpartition(".")[2].lower()
    facts = [next(method for method in METHODS if method.replace("_", "") == name), *levels]
    curve = run.curve(f"metrics/{METRIC}")
    for step, value in zip(curve.steps, curve.values, strict=True):
        yield [*facts, 0, run.seed, int(step), float(value), run.name]
    yield [*facts, 1, run.seed, LAST, second(run), run.name]


def second(run: Run) -> float:
    """The distance of a run's samples from the latents of the other seed, measured now if it never was."""
    from diffusion_lab.cli.main import main

    path, seed = run.folder / EVALUATIONS, OTHER + (run.seed or 0)
    for measured in (False, True):
        for line in reversed(read_lines(path)):
            if (line["name"], line["protocol"].get("seed")) == (METRIC, seed):
                return float(line["value"])
        if not measured and main(["evaluate", f"run={run.folder}", f"metrics.seed={seed}", "metrics.names=[fid]"]):
            break
    raise ValueError(f"{run.folder} must have {METRIC} of the latents of seed {seed}; see what evaluate has said")


@cache
def values() -> dict[int, np.ndarray]:
    """Step -> y (methods, 2, 2, 2, 2, latents, blocks); before the last step with one set of latents.

    Raises:
        ValueError: a block lacks a value.
    """
    found: dict[int, dict[tuple[int, ...], float]] = {}
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            place = (METHODS.index(line["method"]), *(int(line[source]) for source in SOURCES), int(line["seed"]))
            found.setdefault(int(line["step"]), {})[place] = math.log(float(line["value"]))
    blocks = {place[-1] for place in found[LAST]}
    if {len(own) for own in found.values()} - {len(METHODS) * 2**n * len(blocks) for n in (4, 5)}:
        raise ValueError(
            f"{VALUES} must have all values of blocks {sorted(blocks)}; train what is missing, and collect"
        )
    return {step: _array(own, 2 if step == LAST else 1, sorted(blocks)) for step, own in sorted(found.items())}


def _array(found: dict[tuple[int, ...], float], latents: int, whole: list[int]) -> np.ndarray:
    cells = list(itertools.product(range(len(METHODS)), *[range(2)] * 4, range(latents)))
    shape = (len(METHODS), 2, 2, 2, 2, latents, len(whole))
    return np.array([found[*cell, seed] for cell in cells for seed in whole]).reshape(shape)


def variance(y: np.ndarray, shared: Shared) -> float:
    """V(S) of (methods, 2, 2, 2, 2, 2, blocks)."""
    axes = tuple(1 + i for i, source in enumerate(SOURCES) if source not in shared)
    other = np.flip(y, axes)
    pairs = itertools.combinations(range(len(y)), 2)
    return float(np.mean([(y[i] - other[j]).var(-1, ddof=1).mean() for i, j in pairs]))


def ratio(y: np.ndarray, one: Shared, base: Shared) -> Interval:
    """Of the logarithm of V(one) / V(base), with the jackknife's interval."""
    return _jackknife(y, lambda part: math.log(variance(part, one) / variance(part, base)))


def additive(y: np.ndarray) -> Interval:
    """What the sources remove from V one by one, as a share of what they remove together."""

    def share(part: np.ndarray) -> float:
        none = variance(part, frozenset())
        return sum(none - variance(part, frozenset([one])) for one in SOURCES) / (none - variance(part, ALL))

    return _jackknife(y, share)


def _jackknife(y: np.ndarray, of: Callable[[np.ndarray], float]) -> Interval:
    blocks = y.shape[-1]
    whole = of(y)
    parts = [of(np.delete(y, k, -1)) for k in range(blocks)]
    return mean_interval([blocks * whole - (blocks - 1) * part for part in parts])._replace(mean=whole)


def table() -> str:
    """Of each source: V with it alone shared over V with none, V with all but it over V with all."""
    y, none = values()[LAST], frozenset[str]()
    lines = [
        "| shared | deviation | seeds for 1.1 | variance, divided by that with | ratio | 95 % interval |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    kinds: list[tuple[str, Shared, str, Shared]] = [("nothing", none, "", none)]
    kinds += [(f"{source} alone", frozenset([source]), "nothing", none) for source in SOURCES]
    kinds += [("init and latents", frozenset(["init", "latents"]), "nothing", none)]
    kinds += [(f"all but {source}", ALL - {source}, "all", ALL) for source in SOURCES]
    for name, shared, beside, base in [*kinds, ("all", ALL, "nothing", none)]:
        deviation = math.sqrt(variance(y, shared))
        found = ratio(y, shared, base) if beside else None
        cells = [beside, _times(found.mean), _ends(found)] if found else [""] * 3
        seeds = seeds_needed(deviation, math.log(MARGIN), 2)
        lines.append(f"| {name} | {deviation:.3f} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def patterns() -> str:
    """The deviation of a difference for all 32 sets of shared sources."""
    y = values()[LAST]
    lines = [f"| {' | '.join(SOURCES)} | deviation |", f"| {' | '.join(['---'] * len(SOURCES))} | ---: |"]
    every = [frozenset(one) for n in range(len(SOURCES) + 1) for one in itertools.combinations(SOURCES, n)]
    for shared in every:
        marks = ["shared" if source in shared else "" for source in SOURCES]
        lines.append(f"| {' | '.join(marks)} | {math.sqrt(variance(y, shared)):.3f} |")
    return "\n".join(lines)


def course() -> str:
    """Over training: the variance with all sources of the training shared over that with none of them; the latents are
    shared in both."""
    lines = ["| step | deviation, shared | not shared | ratio of variances | 95 % interval |", "| ---: " * 5 + "|"]
    for step, found in _course().items():
        y = values()[step][..., :1, :]
        both = (math.sqrt(variance(y, shared)) for shared in (ALL, frozenset(["latents"])))
        lines.append(f"| {step} | {' | '.join(f'{one:.3f}' for one in both)} | {_times(found.mean)} | {_ends(found)} |")
    return "\n".join(lines)


def predictions() -> str:
    """The number of each prediction of the page, with its interval and what it is compared with."""
    y, first, none = values()[LAST], values()[min(values())], frozenset[str]()
    one = {source: frozenset([source]) for source in SOURCES}

    def gained(of: np.ndarray) -> float:
        return math.log(variance(of, ALL) / variance(of, one["latents"]))

    def shrunk(of: np.ndarray) -> float:
        return gained(of[..., :1, :]) - gained(of[..., 1:, :])

    both = np.concatenate([y[..., :1, :], first], 5)  # the jackknife leaves out a block of both
    kinds = [
        ("1", "V(all) / V(nothing)", ratio(y, ALL, none), "below 1"),
        ("2", "V(latents) / V(init)", ratio(y, one["latents"], one["init"]), "below 1"),
        ("3", "V(init) / V(noise)", ratio(y, one["init"], one["noise"]), "below 1"),
        ("4", "V(timesteps) / V(nothing)", ratio(y, one["timesteps"], none), "above 0.75"),
        (
            "5",
            "V(all) / V(latents), after 400 steps / after 100",
            _jackknife(both, shrunk),
            "above 1",
        ),
    ]
    lines = ["| no. | what | value | 95 % interval | predicted |", "| --- | --- | ---: | ---: | --- |"]
    lines += [f"| {k} | {what} | {_times(found.mean)} | {_ends(found)} | {said} |" for k, what, found, said in kinds]
    share = additive(y)
    ends = "" if share.low is None or share.high is None else f"[{share.low:.2f}, {share.high:.2f}]"
    last = f"| 6 | removed one by one, share of what all remove | {share.mean:.2f} | {ends} | above 0.5 |"
    return "\n".join([*lines, last])


def _course() -> dict[int, Interval]:
    return {step: ratio(y[..., :1, :], ALL, frozenset(["latents"])) for step, y in values().items()}


def figure() -> Figure:
    """Each source alone, all but each, and the course."""
    y = values()[LAST]
    drawn, axes = panels(3, 1, 3.4, sharey=True)
    alone, without, course = axes
    every = {one: frozenset([one]) for one in SOURCES} | {"all": ALL}
    for axis, title, found in (
        (alone, "only one shared / nothing", {name: ratio(y, own, frozenset()) for name, own in every.items()}),
        (without, "all but one shared / all", {one: ratio(y, ALL - {one}, ALL) for one in SOURCES}),
    ):
        for place, one in enumerate(found.values()):
            _point(axis, place, one, line_style(place).color)
        axis.set_xticks(range(len(found)), list(found), rotation=30, ha="right")
        axis.set_xlim(-0.5, len(found) - 0.5)
        panel_title(axis, title, "black", 3)
    for step, one in _course().items():
        _point(course, step, one, line_style(0).color)
    course.set_xticks(list(_course()))
    course.set_xlabel("optimizer steps")
    panel_title(course, "all shared / only latents", "black", 3)
    log_axis(alone)
    for axis in axes:
        axis.axhline(1, color="gray", linewidth=0.8)
    alone.set_ylabel("variance of a difference, ratio")
    return drawn


def _point(axis: Axes, at: float, found: Interval, color: str) -> None:
    ends = [end for end in (found.low, found.high) if end is not None]
    axis.plot([at] * len(ends), np.exp(ends), color=color, linewidth=1.5)
    axis.plot(at, math.exp(found.mean), "o", color=color)


def _times(logarithm: float) -> str:
    return f"{math.exp(logarithm):.2f}"


def _ends(found: Interval) -> str:
    return "" if found.low is None or found.high is None else f"[{_times(found.low)}, {_times(found.high)}]"


PARTS = {"predictions": predictions, "table": table, "patterns": patterns, "course": course}
FIGURES = {"pairing/sources.svg": ("pairing/digits.sources.csv", figure)}


def main(words: list[str]) -> int:
    collect(Path(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
