"""Which rows of a table are better than its baseline, by how much, and which are equal to it.

The numbers y_ks of `simultaneous` are the logarithms of a metric that varies in proportion to its size (a Fréchet
distance), else the metric itself. A ratio is that of geometric means over the common seeds. The rows of a table are
decided together, with variances that use every row, and each has an interval that holds for all of them at once. A row
is better or worse if and only if its interval excludes "no difference"; it is equal within a margin m if the interval
of equality lies inside +- log m.

Measured by `benchmarks/verdicts.py` on the archive of the crossed study, on unequal variances and on heavy tails: a
table has a false verdict in at most 5.5 %, and the intervals cover all rows at once in 94 to 96 %. The nominal level is
3.75 % and not 5 % because the rows of real tables depend on one another by more than their seed. The exceptions are
tables in which one row is ten times as noisy as the others, up to 14 % with 3 seeds and 9 % with 5, and those of four
rows of which one nearly repeats the baseline, 7 % with 3 seeds.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from diffusion_lab.intervals import CLAIM_SEEDS, mean_interval, student_quantile
from diffusion_lab.simultaneous import ALPHA, effects, fewer, largest, statistics

MARGIN = 1.1  # ratio up to which two methods count as equal
_POWER = 0.8

Scale = Literal["ratio", "difference"]
Course = Mapping[int, float]  # images seen -> value
Word = Literal["better", "worse", "equal", "not decided", "identical", "no claim"]


class Verdict(NamedTuple):
    """What a row's seeds say of it, on the scale of the metric.

    Attributes:
        word: better, worse, equal (within the margin), not decided; identical where all differences are exactly 0; no
            claim with fewer than 3 pairs.
        size: ratio of the geometric means, or mean difference, to the baseline.
        low: end of the simultaneous 95 % interval; None for one pair and where rows are identical.
        high: the other end. An end that is exactly 1 (of a ratio) or 0 (of a difference) is not in the interval.
        n: number of seeds that both have.
        deviation: standard deviation of a difference of one seed, on the scale of the logarithm or of the metric;
            None for one pair.
        rows: number of rows that were decided together, with the baseline.
    """

    word: Word
    size: float
    low: float | None
    high: float | None
    n: int
    deviation: float | None = None
    rows: int = 2

    @property
    def decided(self) -> bool:
        return self.word in ("better", "worse")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its ends, where they may be shown; None without a claim."""
        if self.word == "no claim" or self.low is None or self.high is None:
            return None
        return self.low, self.high


def band_of(scale: Scale, margin: float, base: Collection[float]) -> float:
    """The largest effect that counts as equal: log m of ratios, (m - 1) times the mean of the baseline's values, which
    may be none, of differences."""
    if scale == "ratio":
        return math.log(margin)
    return (margin - 1) * abs(math.fsum(base)) / len(base) if base else 0.0


def judge(
    values: Sequence[Mapping[int, float]],
    scale: Scale,
    rising: bool | None,
    margin: float = MARGIN,
) -> list[Verdict | None]:
    """A verdict for each row of a table but the first, the baseline, which has None, as has a row without a pair.

    Args:
        values: the rows; of each, seed -> value, finite; > 0 for a ratio.
        scale: whether rows are compared by ratios or by differences.
        rising: whether larger is better; None: neither, and rows are "not decided" or "equal".
        margin: ratio > 1 within which rows are equal; for differences, (margin - 1) times the mean of the baseline.

    Raises:
        ValueError: a value is not finite, or not positive where ratios are compared.
    """
    for value in (value for row in values for value in row.values()):
        if not math.isfinite(value) or (scale == "ratio" and value <= 0):
            raise ValueError(f"value={value} must be finite{' and > 0' * (scale == 'ratio')}; leave the run out")
    onto, back = (math.log, math.exp) if scale == "ratio" else (float, float)
    base, *rows = ({seed: onto(value) for seed, value in row.items()} for row in values)
    differences = [[row[seed] - base[seed] for seed in sorted(row.keys() & base.keys())] for row in rows]
    tested = [k for k, own in enumerate(differences) if len(own) >= CLAIM_SEEDS and any(own)]
    of_row = dict(zip(tested, _effects([base, *(rows[k] for k in tested)]), strict=True)) if tested else {}
    band = band_of(scale, margin, values[0].values())
    found: list[Verdict | None] = [None]
    for k, own in enumerate(differences):
        if not own:
            found.append(None)
        elif k not in of_row:
            word: Word = "identical" if len(own) >= CLAIM_SEEDS else "no claim"
            mean, _, low, high, n = mean_interval(own)
            low, high = (None if end is None else back(end) for end in (low, high))
            found.append(Verdict(word, back(mean), low, high, n))
        else:
            word, low, high = _word(of_row[k], band, rising)
            deviation = of_row[k][1] * math.sqrt(len(own))
            found.append(Verdict(word, back(of_row[k][0]), back(low), back(high), len(own), deviation, len(tested) + 1))
    return found


def judge_alone(rows: Sequence[Sequence[float]], scale: Scale, margin: float = MARGIN) -> list[Verdict | None]:
    """A verdict for each of m rows that share no baseline, as cells with a control each; None for one without values.

    Student's interval of each at 1 - 5 %/m (Bonferroni), equality by that at 1 - 10 %/m: intervals and verdicts hold
    for all rows at once, and say the same.

    Args:
        rows: of each the ratio, or the difference, of every seed; smaller is better.
        scale: which of the two.
        margin: ratio > 1 within which a row is equal to its control; differences are never equal.
    """
    onto, back = (math.log, math.exp) if scale == "ratio" else (float, float)
    share = sum(len(row) >= CLAIM_SEEDS for row in rows) or 1
    found: list[Verdict | None] = []
    for row in rows:
        if not row:
            found.append(None)
            continue
        mean, std, low, high, n = mean_interval([onto(value) for value in row], 1 - ALPHA / share)
        word: Word = "no claim" if n < CLAIM_SEEDS else "not decided" if std or mean else "identical"
        if n >= CLAIM_SEEDS and std is not None and (std or mean) and low is not None and high is not None:
            equal = abs(mean) + student_quantile(1 - 2 * ALPHA / share, n - 1) * std / math.sqrt(n)
            if low > 0 or high < 0:
                word = "better" if mean < 0 else "worse"
            elif scale == "ratio" and equal < math.log(margin):
                word = "equal"
        ends = [None if end is None else back(end) for end in (low, high)]
        found.append(Verdict(word, back(mean), ends[0], ends[1], n, std, 2))
    return found


def over_training(curves: Sequence[Mapping[int, float]], scale: Scale) -> list[float]:
    """One number for each run of a seed: the mean over the snapshots that all of them have, geometric for ratios.

    Args:
        curves: of each run, images seen -> value.
        scale: as in `judge`.

    Raises:
        ValueError: the runs have no snapshot in common.
    """
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    if not common:
        raise ValueError("the runs have no snapshot at equal images; set the same snapshot_every and batch_size")
    onto, back = (math.log, math.exp) if scale == "ratio" else (float, float)
    return [back(math.fsum(onto(curve[at]) for at in common) / len(common)) for curve in curves]


def diverged(
    curve: Mapping[int, float], baseline: Mapping[int, float], others: Sequence[Mapping[int, float]] = ()
) -> bool:
    """Whether a run of a metric that falls has diverged: its last value is not finite, or is above three times the
    baseline's at the same number of images and also above twice its own best, or three times the median of the row's
    other seeds there: a run that is lost before its first snapshot has no better value of its own. A row of which all
    seeds are as bad has not diverged, it is worse.

    Args:
        curve: images seen -> value, of the run.
        baseline: of the baseline's run with the same seed.
        others: of the other seeds of its row.
    """
    last = max(curve)
    value, best = curve[last], min(curve.values())
    beside = [other[last] for other in others if math.isfinite(other.get(last, math.nan))]
    alone = bool(beside) and value > 3 * median(beside)
    theirs = baseline.get(last, math.nan)  # without a value of its own the baseline says nothing
    return not math.isfinite(value) or (math.isfinite(theirs) and value > 3 * theirs and (value > 2 * best or alone))


def lost_seeds(
    rows: Sequence[Mapping[int, Course]],
    base: int | None,
    compared: Sequence[int],
    is_lost: Callable[[Course, Course, Sequence[Course]], bool] = diverged,
) -> list[list[int]]:
    """The seeds of each row whose run has diverged: beside the baseline's run of that seed, or, where that has no
    finite value, beside the median of the baseline's other seeds that have not diverged; and those of the baseline
    beside the median of the rows that are compared with it, where all of these have a value.

    Args:
        rows: of each, seed -> images seen -> value.
        base: place of the baseline; None: there is none.
        compared: places of the rows that are compared with it.
        is_lost: takes a run, the one beside it, and those of the row's other seeds.
    """

    def beside_the_rest(seed: int) -> Course:
        runs = [rows[k][seed] for k in compared if seed in rows[k]]
        return _medians(runs, set.intersection(*map(set, runs)) if runs else set())

    def beside_the_baseline(seed: int) -> Course:
        if base is None:
            return {}
        others = [run for of, run in rows[base].items() if of not in (seed, *lost_of_base)]
        own = {at: value for at, value in rows[base].get(seed, {}).items() if math.isfinite(value)}
        return {**_medians(others, set().union(*others)), **own}

    def lost(row: Mapping[int, Course], beside: Callable[[int], Course]) -> list[int]:
        others = {seed: [run for of, run in row.items() if of != seed] for seed in row}
        return [seed for seed, run in row.items() if is_lost(run, beside(seed), others[seed])]

    lost_of_base = [] if base is None else lost(rows[base], beside_the_rest)
    return [lost_of_base if i == base else lost(row, beside_the_baseline) for i, row in enumerate(rows)]


def _medians(runs: Sequence[Course], places: Iterable[int]) -> Course:
    """The median of the finite values of the runs at each of the places where there are some."""
    there = {at: [run[at] for run in runs if math.isfinite(run.get(at, math.nan))] for at in places}
    return {at: median(values) for at, values in there.items() if values}


def seeds_needed(deviation: float, size: float, rows: int, most: int = 999) -> int | None:
    """Seeds with which a difference is decided with a probability of 80 %; None: more than `most`.

    The least n >= 3 with `size_decided(deviation, n, rows)` <= size.

    Args:
        deviation: of a difference of one seed, as in `Verdict`.
        size: on the same scale, > 0: a difference, or the logarithm of a ratio.
        rows: K, with the baseline.
        most: largest number that is tried.
    """

    def enough(n: int) -> bool:
        return size_decided(deviation, n, rows) <= size

    if not enough(most):
        return None
    return bisect.bisect_left(range(most), True, lo=CLAIM_SEEDS, key=enough)


def size_decided(deviation: float, n: int, rows: int) -> float:
    """The difference that n seeds decide with a probability of 80 %, on the scale of `deviation`.

    The 80 % quantile of c_(K-1) se - m over tables of rows with equal variances and no difference, where m and se are
    the mean difference of a row and its standard error: it is decided if m plus the difference exceeds c_(K-1) se. From
    20 seeds on it falls as 1/sqrt(n).

    Args:
        deviation: of a difference of one seed, as in `Verdict`.
        n: number of seeds, >= 2.
        rows: K, with the baseline.
    """
    return deviation * _detected(rows, min(n, 20)) * math.sqrt(min(n, 20) / n)


def _word(effect: Sequence[float], band: float, rising: bool | None) -> tuple[Word, float, float]:
    """The verdict and the ends of the interval."""
    mean, _, half, decides, equal = effect
    low, high = mean - half, mean + half
    if rising is not None and abs(mean) > decides:
        low, high = (max(low, 0.0), high) if mean > 0 else (low, min(high, 0.0))
        return ("better" if (mean > 0) == rising else "worse"), low, high
    return ("equal" if abs(mean) + equal < band else "not decided"), low, high


def _effects(table: Sequence[Mapping[int, float]]) -> list[list[float]]:
    """`Effects` of each row but the first: seed -> y."""
    seeds = sorted(set().union(*table))
    there = np.array([[seed in row for seed in seeds] for row in table])
    y = np.array([[row.get(seed, 0.0) for seed in seeds] for row in table])
    return np.stack(effects(y, there), axis=1).tolist()


@lru_cache(maxsize=256)
def _detected(rows: int, n: int) -> float:
    """`size_decided` for a deviation of 1."""
    tables = fewer(8_000, rows, n)
    y = np.random.default_rng(0).standard_normal((tables, rows, n)) * math.sqrt(0.5)
    mean, error = statistics(y, np.ones((rows, n), dtype=bool))
    used = math.ceil(8_000 / tables)  # rows of a table, which has the more of them the fewer there are
    return float(np.quantile(largest(rows, n) * error[:, :used] - mean[:, :used], _POWER))
