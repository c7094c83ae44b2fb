"""Which rows of a race go on: seeds are trained in blocks, and a row that has lost is trained no more.

Row i of K with training seed s has one number y_is, smaller is better, on a scale on which differences mean the same
everywhere: the logarithm of a Fréchet distance. All rows that are in the race get seed n before one of them gets seed
n + 1. After each block of n = 2, .., N seeds every ordered pair of them is looked at,

    T_ij = (y_i. - y_j.) / sqrt((v_i + v_j) / n)

with the moderated variances of `simultaneous`, of all seeds that there are. Because the leader is chosen by the data,
all pairs are bounded and not those with the leader alone.

    worse        T_ij > c_n for some j: row i has lost to row j
    set aside    T_ij + log m / sqrt((v_i + v_j) / n) > b_n for some j: row i is not better than row j by more than the
                 margin m, so that more seeds would not make it the choice; nothing is said of it but that

A row that is worse or set aside leaves the race. The race ends with one row, after N seeds, or when the seeds that are
left would make the choice, the row l with the best mean, better by less than a twentieth of log m on average. With d_i
= y_i. - y_l. and s_i^2 = (v_i + v_l) (1/n - 1/N), the variance of what the further seeds change in it, that is at most

    gain = sum_i E max(0, -D_i) = sum_i s_i phi(d_i / s_i) - d_i Phi(-d_i / s_i),    D_i ~ d_i + s_i N(0, 1)

over the rows in the race: the value of information (Raiffa and Schlaifer 1961, "Applied statistical decision theory",
chapter 5) with a flat prior of the means. Because the variances are estimated, phi and Phi are those of Student's
distribution with nu = min((K-1) (n-1), nu_0 + n-1) degrees of freedom, nu_0 of the prior of `simultaneous`, and the
term of phi has the factor (nu + (d_i/s_i)^2)/(nu-1): with two rows and two seeds the gain is infinite.

**The bounds** c_2, .., c_N spend the error alpha in the course of the race (Lan and DeMets 1983, "Discrete sequential
boundaries for clinical trials"): of races of equal rows, alpha (n/N)^2 have had a pair beyond its bound after n seeds.
They are quantiles over 20,000 such races, whose rows have variances that are scaled inverse chi-squared with 4 degrees
of freedom, of those that have crossed no earlier bound. The nominal level is 3/5 of alpha, because rows of real tables
depend on one another by more than their seed (`benchmarks/races.py`). b_2, .., b_N are the same with beta = 0.2, as a
comparison is planned with a power of 80 %, and beta (n/N)^(1/2): that a row is left behind is no verdict, and
trainings are saved where rows leave early.

**What holds.** A row is called worse than a row that is not better with a probability of at most alpha in the whole
race, whatever the other differences are, because a difference T_ij of a row that is not worse is at most that of equal
rows, and rows that leave make fewer pairs. Likewise a row that is better than another one by the margin or more is set
aside because of it with a probability of at most beta.

**Intervals** that hold for all rows together, whenever the race ends (repeated confidence intervals, Jennison and
Turnbull 1989, "Interim analyses: the repeated confidence interval approach", section 2): the difference of two rows
after the n seeds that both have is within +- c_n sqrt((v_i + v_j)/n) of the truth.

Differs from successive halving and from cuts after a part of the training, which drop a fixed share: here nothing is
dropped before the noise of its seeds says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from diffusion_lab.simultaneous import ALPHA, PRIOR, fewer, moderated, without_differences
from diffusion_lab.verdicts import MARGIN

FIRST = 2  # seeds before the first look
_NOMINAL = 0.6  # of alpha
_RACES, _CHUNK = 20_000, 2_000
_LATE, _EARLY = 2, 0.5  # exponents of the share of an error that is spent after a share of the seeds
_BETA = 0.2  # of setting a row aside
WORTH = 0.05  # of log m, the least gain for which seeds are trained

Word = Literal["in", "worse", "set aside"]


class Standing(NamedTuple):
    """Where a row stands.

    Attributes:
        word: in the race, worse than another row, or set aside.
        seeds: after which it left; None while it is in.
        by: the row that it lost to, or is not better than; None while it is in.
    """

    word: Word = "in"
    seeds: int | None = None
    by: int | None = None


class Gap(NamedTuple):
    """A row's difference to another one, over the seeds that both have.

    Attributes:
        size: mean difference; positive: worse.
        half: half width of its interval; infinite with fewer than two common seeds, or none.
    """

    size: float
    half: float


def standings(
    y: np.ndarray, there: np.ndarray, most: int, margin: float | None = MARGIN, alpha: float = ALPHA
) -> list[Standing]:
    """Where the rows stand after the blocks that are whole: a function of the values, however often it was stopped.

    Args:
        y: (K, S) the rows; any finite number where a value is missing.
        there: (K, S) whether there is a value; of each row, those of the first seeds.
        most: N, the seeds of a race that goes on to its end; S <= N.
        margin: ratio m > 1; None: no row is set aside.
        alpha: of calling a row worse, in the whole race, 0.02 to 0.2.

    Raises:
        ValueError: there are fewer than two rows, or a row lacks a seed before one that it has.
    """
    if len(y) < 2 or (there[:, 1:] > there[:, :-1]).any():
        raise ValueError(f"there={there.tolist()} must be of two rows or more, and of each the first seeds")
    found = [Standing() for _ in y]
    limits, aside = bounds(len(y), most, alpha), bounds(len(y), most, _BETA, _EARLY)
    for n in range(FIRST, y.shape[1] + 1):
        running = np.array([one.word == "in" for one in found])
        if running.sum() < 2 or not there[running, n - 1].all():
            break
        size, error = _pairs(y[:, :n], there[:, :n])
        size[:, ~running] = -math.inf
        np.fill_diagonal(size, -math.inf)  # with a margin a row would be compared with itself
        left: list[tuple[Word, np.ndarray]] = [("worse", size - limits[n - FIRST] * error)]
        if margin is not None:
            left.append(("set aside", size + math.log(margin) - aside[n - FIRST] * error))
        for word, beyond in left:
            for i in np.flatnonzero(running & (beyond > 0).any(1)):
                if found[i].word == "in":
                    found[i] = Standing(word, n, int((beyond / error)[i].argmax()))
        _keep_the_leader(found, y[:, :n].mean(1), running, n)
    return found


def is_over(
    y: np.ndarray, there: np.ndarray, most: int, found: Sequence[Standing], margin: float | None = MARGIN
) -> bool:
    """Whether no further block is trained.

    Args:
        y, there, most, margin: as of `standings`; without a margin, a race goes on while two rows are in it.
        found: where the rows stand.
    """
    left = [i for i, one in enumerate(found) if one.word == "in"]
    seeds = there.sum(1)[left]
    if len(left) < 2 or (seeds == most).all():
        return True
    if margin is None or (seeds < FIRST).any() or (seeds != seeds[0]).any():
        return False
    return gain(y[:, : seeds[0]], there[:, : seeds[0]], most, left) < WORTH * math.log(margin)


def gain(y: np.ndarray, there: np.ndarray, most: int, left: Sequence[int]) -> float:
    """By how much the choice after N seeds is better than the one after these n, on average and at most.

    Args:
        y, there: (K, n) as of `standings`.
        most: N >= n.
        left: the rows in the race, which have all n seeds.
    """
    from scipy.stats import t as student

    rows, n = y.shape
    degrees = min((rows - 1) * (n - 1), PRIOR + n - 1)
    if n == most or degrees < 2:
        return 0.0 if n == most else math.inf
    leader = min(left, key=lambda i: y[i].mean())
    size, error = _pairs(y, there)
    others = [i for i in left if i != leader]
    s = error[others, leader] * math.sqrt(1 - n / most) + 1e-300  # error^2 = (v_i + v_l) / n
    z = np.minimum(size[others, leader] / s, 1e100)
    density = student.pdf(z, degrees) * (degrees + z**2) / (degrees - 1)
    return float((s * (density - z * student.sf(z, degrees))).sum())


def gaps(y: np.ndarray, there: np.ndarray, most: int, leader: int, alpha: float = ALPHA) -> list[Gap]:
    """The differences to a row that is in the race, with intervals at 1 - alpha that hold whenever it ends; arguments
    as of `standings`."""
    limits, found = bounds(len(y), most, alpha), []
    for i, n in enumerate((there & there[leader]).sum(1).tolist()):
        if n < FIRST or i == leader:
            both = there[i] & there[leader]
            found.append(
                Gap(float((y[i] - y[leader])[both].mean()) if n else math.nan, 0.0 if i == leader else math.inf)
            )
            continue
        size, error = _pairs(y[:, :n], there[:, :n])
        found.append(Gap(float(size[i, leader]), float(limits[n - FIRST] * error[i, leader])))
    return found


def _keep_the_leader(found: list[Standing], mean: np.ndarray, running: np.ndarray, n: int) -> None:
    """Rows that set one another aside: the best of them stays, which is no worse a choice."""
    best = int(np.where(running, mean, math.inf).argmin())
    if found[best].word == "set aside" and found[best].seeds == n:
        found[best] = Standing()


def _pairs(y: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y_i. - y_j. and its standard error, each (.., K, K); of rows with other numbers of seeds it has no meaning."""
    n = there.sum(-1)
    mean = (y * there).sum(-1) / n
    if len(there) == 2:
        variance = (y[..., 1, :] - y[..., 0, :]).var(-1, ddof=1)[..., None] / 2 + np.zeros(2)
    else:
        variance = moderated(y, there)
    share = variance / n + 1e-300
    return mean[..., :, None] - mean[..., None, :], np.sqrt(share[..., :, None] + share[..., None, :])


@lru_cache(maxsize=64)
def bounds(rows: int, most: int, alpha: float = ALPHA, exponent: float = _LATE) -> np.ndarray:
    """c_2, .., c_N, (N-1,).

    Args:
        rows: K >= 2.
        most: N >= 2.
        alpha: of the whole race, 0.02 to 0.2.
        exponent: alpha (n/N)^exponent is spent after n seeds.
    """
    looks = range(FIRST, most + 1)
    largest = _largest(rows, most)
    kept, limits = np.ones(len(largest), dtype=bool), []
    for column, n in zip(largest.T, looks, strict=True):
        spent = _NOMINAL * alpha * (n / most) ** exponent
        over = round(spent * len(largest)) - int((~kept).sum())
        limit = np.sort(column[kept])[::-1][max(over, 0)]
        limits.append(limit)
        kept &= column <= limit
    return np.array(limits)


@lru_cache(maxsize=8)
def _largest(rows: int, most: int) -> np.ndarray:
    """The largest T of all pairs after each look, (races, N-1), in races of equal rows."""
    random, found = np.random.default_rng(0), []
    chunk = fewer(_CHUNK, rows, most)
    for _ in range(math.ceil(_RACES / chunk)):
        y = without_differences((rows, most), random, chunk)
        looks = []
        for n in range(FIRST, most + 1):
            size, error = _pairs(y[..., :n], np.ones((rows, n), dtype=bool))
            looks.append((size / error).max((-1, -2)))
        found.append(np.stack(looks, 1))
    return np.concatenate(found)
