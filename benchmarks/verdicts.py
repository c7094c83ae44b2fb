"""How often the verdicts of a table are right: `python -m benchmarks.verdicts` writes verdicts.md in minutes.

The statistic of `diffusion_lab/verdicts.py` is judged on tables whose truth is known. A table has K rows, the first of
which is the baseline, and n seeds.

    archive          rows are cells of the crossed study (digits, 144 cells of 5 seeds, logarithms, mean of the two
                     snapshots) without their mean; a table takes K cells and n seeds at random and flips the sign of
                     whole seeds, so that no row differs and rows keep their common noise. With n = 10, the columns are
                     those of both snapshots.
    unequal          normal, standard deviations log-uniform over a factor of 4 (variances: 16)
    heavy tails      Student's t with 4 degrees of freedom
    diverging        one seed of one row is 40 standard deviations above the others; the other rows are asked
    noisy row        one row has 10 times the standard deviation of the others
    collapsed seed   the archive, with one seed of one row 10 of its standard deviations above the others; the other
                     rows are asked
    repeating row    one row differs from the baseline by a hundredth of the noise (standard deviation 0.001)
    all studies      the Fréchet distances of every table of `experiments/archive` with at least 5 seeds, logarithms
                     over training, with the differences that they have; a table takes K rows and n seeds of one of
                     them, which is chosen in proportion to its rows

False: share of tables in which a row is called better or worse. Decided: share of the rows of true ratio 1.1 to 1.4
(that of all 5 seeds) that are decided, on the archive's own values. Covered: share of tables in which every interval
holds its row's truth, without differences, with those of K cells of the archive, and with half of the rows without a
difference and half far away, where the step-down costs most. False equality: share of tables with an interval of
equality inside the margin, when all rows lie exactly at the margin, with the archive's noise divided by 8, so that
equality could be told; a row that is decided is not called equal, so the word is false even less often.

The control simulates two methods with the variance components of logit_normal over uniform on digits, of the
logarithm: 0.0060 training seed, 0.0013 latents, 0.0023 both together, and asks how often the 95 % interval covers with
latents that belong to the seed and with one set of latents for all seeds.
"""

from __future__ import annotations

import csv
import datetime
import math
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from diffusion_lab.intervals import holm
from diffusion_lab.simultaneous import critical_values, effects, stand_out, statistics
from diffusion_lab.verdicts import MARGIN
from experiments.archive import curves

ROOT = Path(__file__).resolve().parents[1]
VALUES = ROOT / "experiments" / "schedule_by_sampler" / "digits.values.csv"
PAGE = Path(__file__).resolve().parent / "verdicts.md"
ROWS, SEEDS, TABLES = (2, 4, 7, 13, 20), (3, 5, 10), 6_000
COLLAPSED = 10  # standard deviations
COMPONENTS = {"training seed": 0.0060, "latents": 0.0013, "both": 0.0023}

Tables = Callable[[np.random.Generator, int, int, int], np.ndarray]  # random, tables, rows, seeds -> (.., K, n)


def archive() -> np.ndarray:
    """Logarithms of the Fréchet distances: (cells, seeds, snapshots), without learned_beta, which costs more."""
    found: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["sampler"] != "learned_beta":
                cell = (line["schedule"], line["prediction"], line["sampler"], line["weighting"])
                found[cell][int(line["seed"]), int(line["step"])] = float(line["value"])
    whole = [[[own.get((s, at), np.nan) for at in (400, 800)] for s in range(5)] for own in found.values()]
    y = np.log(np.array(whole))
    return y[np.isfinite(y).all((1, 2))]


Y = archive()
OVER = Y.mean(2)


def residuals(y: np.ndarray) -> np.ndarray:
    """What is left of the rows without their mean, with its variance restored: (cells, seeds)."""
    return (y - y.mean(1, keepdims=True)) * np.sqrt(y.shape[1] / (y.shape[1] - 1))


NOISE, NOISE_10 = residuals(OVER), np.concatenate([residuals(Y[:, :, 0]), residuals(Y[:, :, 1])], 1)


def _chosen(random: np.random.Generator, tables: int, of: int, count: int) -> np.ndarray:
    """`count` different numbers below `of`, for each table."""
    return np.argsort(random.random((tables, of)), 1)[:, :count]


def of_archive(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    noise = NOISE if seeds <= 5 else NOISE_10
    cells, columns = (_chosen(random, tables, of, n) for of, n in zip(noise.shape, (rows, seeds), strict=True))
    return noise[cells[:, :, None], columns[:, None, :]] * random.choice([-1, 1], (tables, 1, seeds))


def unequal(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    return random.standard_normal((tables, rows, seeds)) * np.exp(random.uniform(0, np.log(4), (tables, rows, 1)))


def heavy_tails(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    return random.standard_t(4, (tables, rows, seeds))


def diverging(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    y = random.standard_normal((tables, rows, seeds))
    y[:, -1, 0] += 40
    return y


def noisy_row(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    y = random.standard_normal((tables, rows, seeds))
    y[:, -1] *= 10
    return y


def collapsed_seed(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    return _collapsed(of_archive(random, tables, rows, seeds))


def _collapsed(y: np.ndarray) -> np.ndarray:
    """The tables with the first seed of the last row far off."""
    y = y.copy()
    y[:, -1, 0] += COLLAPSED * NOISE.std()
    return y


def repeating_row(random: np.random.Generator, tables: int, rows: int, seeds: int) -> np.ndarray:
    y = random.standard_normal((tables, rows, seeds)) * 0.1
    y[:, -1] = y[:, 0] + random.standard_normal((tables, seeds)) * 0.001
    return y


OTHERS_ASKED = (diverging, collapsed_seed)  # not whether the row that is far off is called so


class Judged(NamedTuple):
    """Of many tables: mean, ends of the intervals, whether rows are decided, and whether they lie within the margin."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    decided: np.ndarray
    equal: np.ndarray


def judged(y: np.ndarray, margin: float = MARGIN) -> Judged:
    """What `verdicts.judge` says of tables with all their seeds, (.., K, n)."""
    there = np.ones(y.shape[-2:], dtype=bool)
    mean, error = statistics(y, there)
    rows = mean.shape[1]
    half, steps, equal = critical_values(1e9 * np.arange(rows, 0, -1.0), there)
    with np.errstate(divide="ignore", invalid="ignore"):  # two rows of the same runs
        size = np.abs(mean) / error
    order = np.argsort(-size, 1)
    passed = np.cumprod(np.take_along_axis(size, order, 1) > steps, 1).astype(bool)
    decided = np.zeros_like(passed)
    np.put_along_axis(decided, order, passed, 1)
    half, equal = half * error, equal * error
    for table in np.flatnonzero(stand_out(y, there).any(-1)):
        found = effects(y[table], there)
        half[table], equal[table], decided[table] = found.half, found.equal, np.abs(found.mean) > found.decides
    low, high = mean - half, mean + half
    low = np.where(decided & (mean > 0), np.maximum(low, 0), low)
    high = np.where(decided & (mean < 0), np.minimum(high, 0), high)
    return Judged(mean, low, high, decided, np.abs(mean) + equal < np.log(margin))


def paired_holm(y: np.ndarray) -> np.ndarray:
    """What was done before: paired t-tests at the end, corrected by Holm; whether a row is decided."""
    difference = y[:, 1:] - y[:, :1]
    n = y.shape[-1]
    t = difference.mean(-1) / np.maximum(difference.std(-1, ddof=1), 1e-300) * np.sqrt(n)
    p = 2 * student.sf(np.abs(t), n - 1)
    return np.array([[one <= 0.05 for one in holm(row)] for row in p.tolist()])


def false_verdicts(tables: Tables, rows: int, seeds: int) -> float:
    decided = judged(tables(np.random.default_rng([rows, seeds]), TABLES, rows, seeds)).decided
    return float((decided[:, :-1] if tables in OTHERS_ASKED else decided).any(1).mean())


def decided_pairs(rows: int, seeds: int) -> tuple[float, float, float]:
    """Share of the rows of true ratio 1.1 to 1.4 that are decided: over training now, also of the others where one seed
    of one row has collapsed (NaN for two rows, which have no other), and at the end as before."""
    random = np.random.default_rng([rows, seeds])
    cells, columns = _chosen(random, TABLES // 4, len(Y), rows), _chosen(random, TABLES // 4, 5, seeds)
    now, before = (own[cells[:, :, None], columns[:, None, :]] for own in (OVER, np.exp(Y[:, :, 1])))
    collapsed = judged(_collapsed(now)).decided[:, :-1]
    shares = []
    for truth, decided in ((OVER, judged(now).decided), (OVER, collapsed), (Y[:, :, 1], paired_holm(before))):
        mean = truth[cells].mean(-1)
        size = np.abs(mean[:, 1:] - mean[:, :1])[:, : decided.shape[1]]
        asked = (size > np.log(1.1)) & (size < np.log(1.4))
        shares.append(float((decided & asked).sum() / asked.sum()) if asked.any() else math.nan)
    return shares[0], shares[1], shares[2]


def coverage(effects: str, rows: int, seeds: int) -> float:
    """Share of tables whose intervals all hold the truth."""
    random = np.random.default_rng([rows, seeds])
    noise = of_archive(random, TABLES, rows, seeds)
    mean = np.zeros((TABLES, rows))
    if effects == "archive":
        mean = OVER[_chosen(random, TABLES, len(OVER), rows)].mean(-1)
    elif effects == "half":
        mean[:, 1 + (rows - 1) // 2 :] = 50.0
    truth = mean[:, 1:] - mean[:, :1]
    found = judged(noise + mean[:, :, None])
    held = (found.low <= truth) & (truth <= found.high) & ~(found.decided & (truth == 0))
    return float(held.all(1).mean())


def studies(without: str = "no row", least: int = 5) -> dict[tuple[str, ...], np.ndarray]:
    """Logarithms of the Fréchet distances over training of each table of the archive, (rows, seeds), with the seeds
    that all of its rows have, at least `least`; `without` the rows with this word. Keys: study, table and metric."""
    found: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for curve in curves():
        if curve.metric.startswith("fd") and without not in curve.row:
            table = (curve.study, curve.table, curve.metric)
            found[table][curve.row][curve.seed] = float(np.log(curve.values).mean())
    tables = {}
    for table, rows in found.items():
        seeds = sorted(set.intersection(*(set(row) for row in rows.values())))
        if len(seeds) >= least:
            tables[table] = np.array([[row[seed] for seed in seeds] for row in rows.values()])
    return tables


def coverage_of_studies(own: list[np.ndarray], rows: int, seeds: int, tables: int = TABLES) -> float:
    """Share of tables, drawn from `own`, whose intervals all hold the truth."""
    random = np.random.default_rng([rows, seeds])
    large = [y for y in own if len(y) >= rows]
    shares = np.array([len(y) for y in large])
    held = 0
    for y, count in zip(large, random.multinomial(tables, shares / shares.sum()), strict=True):
        cells, columns = _chosen(random, count, len(y), rows), _chosen(random, count, y.shape[1], seeds)
        noise = residuals(y)[cells[:, :, None], columns[:, None, :]] * random.choice([-1, 1], (count, 1, seeds))
        mean = y.mean(1)[cells]
        found, truth = judged(noise + mean[:, :, None]), mean[:, 1:] - mean[:, :1]
        held += int(((found.low <= truth) & (truth <= found.high)).all(1).sum())
    return held / tables


def false_equality(rows: int, seeds: int) -> float:
    random = np.random.default_rng([rows, seeds])
    y = of_archive(random, TABLES, rows, seeds) / 8
    y[:, 1:] += np.log(MARGIN)
    return float(judged(y).equal.any(1).mean())


def told_equality(rows: int, seeds: int) -> float:
    y = repeating_row(np.random.default_rng([rows, seeds]), TABLES // 4, rows, seeds)
    return float(judged(y).equal[:, -1].mean())


def shared_latents(seeds: int, tables: int = 40_000) -> tuple[float, float, float]:
    """Coverage of the 95 % interval with latents of the seed and with common ones, and the latter as computed."""
    random = np.random.default_rng(seeds)
    training, latents, both = (np.sqrt(part) for part in COMPONENTS.values())
    own = random.standard_normal((3, tables, seeds)) * np.array([training, latents, both])[:, None, None]
    common = own.copy()
    common[1] = random.standard_normal((tables, 1)) * latents
    covered = []
    for parts in (own, common):
        d = parts.sum(0)
        half = student.ppf(0.975, seeds - 1) * d.std(1, ddof=1) / np.sqrt(seeds)
        covered.append(float((np.abs(d.mean(1)) <= half).mean()))
    inside = COMPONENTS["training seed"] + COMPONENTS["both"]
    scale = np.sqrt(inside / (inside + seeds * COMPONENTS["latents"]))  # printed standard error over the true one
    reach = student.ppf(0.975, seeds - 1) * scale
    return covered[0], covered[1], float(student.cdf(reach, seeds - 1) - student.cdf(-reach, seeds - 1))


def lines() -> Iterator[str]:
    """The page."""
    head = f"| | n | {' | '.join(f'K = {rows}' for rows in ROWS)} |"
    rule = "|---|---:|" + "---:|" * len(ROWS)

    def grid(names: dict[str, Callable[[int, int], float]], seeds: tuple[int, ...]) -> Iterator[str]:
        yield from (head, rule)
        for name, value in names.items():
            for n in seeds:
                shares = (value(rows, n) for rows in ROWS)
                yield f"| {name} | {n} | {' | '.join('' if one != one else f'{one:.3f}' for one in shares)} |"

    yield "## False verdicts, at most 0.055\n"
    kinds = {"archive": of_archive, "unequal": unequal, "heavy tails": heavy_tails}
    yield from grid({name: lambda k, n, own=own: false_verdicts(own, k, n) for name, own in kinds.items()}, SEEDS)
    yield "\nWith a row that stands out; a noisy one is seen as such only if its few values are not alike by chance:\n"
    yield f"| | n | {' | '.join(f'K = {rows}' for rows in ROWS[1:])} |\n|---|---:|" + "---:|" * (len(ROWS) - 1)
    special = {"diverging": diverging, "collapsed seed": collapsed_seed, "noisy row": noisy_row}
    for name, own in {**special, "repeating row": repeating_row}.items():
        for n in SEEDS:
            yield f"| {name} | {n} | {' | '.join(f'{false_verdicts(own, rows, n):.3f}' for rows in ROWS[1:])} |"
    yield "\n## Decided, of the rows whose true ratio is 1.1 to 1.4\n"
    columns = ("now", "now, one seed of another row collapsed", "before")
    yield from grid({name: lambda k, n, i=i: decided_pairs(k, n)[i] for i, name in enumerate(columns)}, SEEDS[:2])
    yield "\n## Covered: every interval of the table holds the truth\n"
    effects = {"no difference": "none", "differences of the archive": "archive", "half of the rows far away": "half"}
    yield from grid({name: lambda k, n, own=own: coverage(own, k, n) for name, own in effects.items()}, SEEDS)
    yield "\nOf tables of all studies, also without learned_beta, of which some seeds fail:\n"
    kept = {"all studies": [*studies().values()], "without learned_beta": [*studies("learned_beta").values()]}
    yield from grid({name: lambda k, n, own=own: coverage_of_studies(own, k, n) for name, own in kept.items()}, (3, 5))
    yield "\n## False equality, at most 0.05\n"
    yield from grid({f"all rows at {MARGIN}": false_equality}, SEEDS)
    yield "\n## Equality, told of a row that repeats the baseline\n"
    yield from grid({"repeating row": told_equality}, SEEDS)
    yield "\n## Control: one set of latents for all seeds\n"
    yield "| n | latents of the seed | common latents | computed |\n|---:|---:|---:|---:|"
    for n in (4, 10, 20):
        yield "| " + " | ".join([str(n), *(f"{value:.3f}" for value in shared_latents(n))]) + " |"


def main() -> int:
    said = (__doc__ or "").split("\n\n", 1)
    title = "# How often the verdicts are right\n"
    made = f"`python -m benchmarks.verdicts`, {datetime.date.today()}, NumPy {np.__version__}, {platform.machine()}; "
    made += f"{TABLES:,} tables\nper number, so a share of 0.05 has a standard error of 0.003.\n"
    text = "\n".join([title, made, said[1].strip() + "\n", *lines()]) + "\n"
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
