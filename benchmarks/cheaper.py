"""Whether other latents, or a mean over the last snapshots, measure a difference more cheaply.

    diffusion-lab train -m experiment=demo sampler=uniform,logit_normal seed=0
    python -m benchmarks.cheaper runs/demo/*-s0-*

writes cheaper.md, in a quarter of an hour of one core. The two runs are models of digits (64 numbers an image) on the
same latents, sampled by DDIM with 10 steps. What was measured is kept in cheaper.csv beside the runs, where a second
call goes on. Runs on other data may be named as well; larger images were not measured.

## Latents

    pseudo-random    independent normal numbers, as evaluations use them
    antithetic       each z and then -z
    Sobol            a sequence in the dimension of a sample, scrambled (PyTorch's SobolEngine), through the quantile of
                     the normal distribution (Chong and Forsyth 2020, "Effectively Unbiased FID and Inception Score and
                     where to find them")

A set is 2,048 samples in blocks of each size, so that a block of quasi-random numbers is a whole net. With eta = 1 the
dimension of a sample is that of x_T and of the noise of all steps together. Variances are of the logarithm over sets,
at the same place in a set, mean over places and models, with a 95 % interval of their ratio from 2,000 bootstraps of
sets. A shift is the difference of the means of the logarithm, ± its standard error.

## Snapshots

A log ratio is taken at the end, as the mean over the last 2 or 3 snapshots, or over training (all snapshots), from the
committed values: the tables of the papers at scale mini, with snapshots after 20, 40, .. 100 % of the training, and the
crossed study, after 50 and 100 %. The variance is that over seeds, mean over pairs of rows, relative to that at the
end. The shift is the root of the mean square over pairs by which the log ratio differs from that at the end, without
the part that is noise (0: no more than noise). Rows that repeat another one and rows that diverged are left out.
"""

from __future__ import annotations

import csv
import datetime
import math
import platform
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.cheaper_latents import latents_part
from diffusion_lab.intervals import mean_interval
from diffusion_lab.verdicts import diverged

ANSWER = """**Neither quasi-random nor antithetic latents make the difference of two methods vary less, so evaluations
keep pseudo-random ones.** With a deterministic solver, scrambled Sobol latents lower the variance of one model's
distance to a third or a half, but not that of the ratio of two models: the rows of a seed share their latents, and with
these the part of the variance that Sobol's take away. Of the twelve relative variances of the ratio one excludes 1,
that of antithetic latents with 1,024 samples and eta = 0, and neither 512 nor 2,048 samples confirm it. Twenty sets
would show a variance of a half, not one that is a fifth lower.

**A mean over snapshots does, and `question.estimand=training` is that mean.** The last two or three of five snapshots
lie between the end and the whole training in variance, and answer neither question: they are no option."""
ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).resolve().parent / "cheaper.md"
CROSSED = "schedule_by_sampler/digits.values.csv", ("schedule", "prediction", "sampler", "weighting")
Curves = dict[int, dict[int, float]]  # seed -> step -> value


def tables() -> Iterator[tuple[str, np.ndarray]]:
    """Name, and logarithms of the Fréchet distances (rows, seeds, snapshots), of each table with several snapshots."""
    folder = ROOT / "experiments"
    files = [(str(path.relative_to(folder)), ("row",)) for path in sorted(folder.glob("*/results/mini/*/per_seed.csv"))]
    for file, keys in (*files, CROSSED):
        columns: dict[str, dict[tuple[str, ...], Curves]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
        with open(folder / file, newline="", encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                if (
                    line.get("quantity", "fd").startswith("fd")
                    and line["value"]
                    and line.get("sampler") != "learned_beta"
                ):
                    row = tuple(line[key] for key in keys)
                    columns[line.get("column", "")][row][int(line["seed"])][int(line["step"])] = float(line["value"])
        for column, rows in columns.items():
            y = _logarithms(list(rows.values()))
            if len(y) > 1 and y.shape[2] > 1:
                parts = Path(file).parts
                yield (" ".join([parts[0], *parts[3:4], column]).strip(), y)


def _logarithms(rows: Sequence[Curves]) -> np.ndarray:
    """Without rows that diverged, miss a value, or repeat another one."""
    base, found = rows[0], {}
    for row in rows:
        whole = [row.get(seed, {}) for seed in base]
        complete = all(set(curve) == set(next(iter(base.values()))) for curve in whole)
        if complete and not any(diverged(curve, base[seed]) for seed, curve in row.items() if seed in base):
            y = np.log([[curve[at] for at in sorted(curve)] for curve in whole])
            found[y.tobytes()] = y
    return np.array(list(found.values()))


def pairs_variance(y: np.ndarray) -> float:
    """Of the difference of two rows of (rows, seeds), over seeds, mean over pairs."""
    return 2 / (len(y) - 1) * float((y - y.mean(0)).var(1, ddof=1).sum())


def pairs_shift(y: np.ndarray) -> float:
    """Root of the mean square difference of two rows of (rows, seeds), without what is noise of its mean; 0 or more."""
    square = 2 / (len(y) - 1) * float(((y - y.mean(0)).mean(1) ** 2).sum())
    return math.sqrt(max(0.0, square - pairs_variance(y) / y.shape[1]))


def snapshots_part() -> Iterator[str]:
    """The table, and the mean over its lines with five snapshots."""
    kinds = ("last 2", "last 3", "over training")
    heads = " | ".join(kinds)
    yield f"| table | rows | seeds | snapshots | variance at the end | {heads} | shift: {heads} |"
    yield "|---|" + "---:|" * 10
    relative: dict[str, list[float]] = defaultdict(list)
    for name, y in tables():
        rows, seeds, count = y.shape
        end, ratios, shifts = pairs_variance(y[:, :, -1]), [""] * 3, [""] * 3
        for k, last in enumerate((2, 3, count)):
            if last <= count:
                mean = y[:, :, count - last :].mean(2)
                ratio, shift = pairs_variance(mean) / end, pairs_shift(mean - y[:, :, -1])
                ratios[k], shifts[k] = f"{ratio:.2f}", f"{shift:.3f}" if shift else "0"
                if count == 5:
                    relative[kinds[k]].append(math.log(ratio))
        yield f"| {name} | {rows} | {seeds} | {count} | {end:.4f} | {' | '.join(ratios)} | {' | '.join(shifts)} |"
    yield "\nOver the tables with five snapshots, as a geometric mean with its 95 % interval:\n"
    for kind, logs in relative.items():
        mean, _, low, high, n = mean_interval(logs)
        ends = f"[{math.exp(low):.2f}, {math.exp(high):.2f}]" if low is not None and high is not None else ""
        yield f"- {kind}: {math.exp(mean):.2f} {ends} times the variance at the end (n = {n})"


def main() -> int:
    runs = [Path(word) for word in sys.argv[1:]]
    if not runs:
        print(__doc__)
        return 1
    torch.set_num_threads(1)
    intro, latents, snapshots = (__doc__ or "").split("\n## ")
    made = f"{datetime.date.today()}, PyTorch {torch.__version__}, one thread, {platform.machine()}:\n\n"
    _, commands = intro.split("\n\n", 1)
    parts = [f"# {intro.splitlines()[0].rstrip('.')}", "", made + commands.strip("\n"), "", ANSWER, ""]
    parts += ["## " + latents.strip(), "", *latents_part(runs)]
    parts += ["## " + snapshots.strip(), "", *snapshots_part()]
    text = "\n".join(parts) + "\n"
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
