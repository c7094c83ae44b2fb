"""Intervals for all rows of a table at once, from few seeds: moderated variances and a step-down by the largest |T|.

Row k of K with training seed s has one number y_ks, on a scale on which differences mean the same everywhere. A seed is
a block: its rows share images, noise, initial weights and latents. Row 0 is the baseline.

**Estimate.** m_k = mean over the common seeds of y_ks - y_0s.

**Variance.** Row k weighs w_k in what the rows of a seed have in common, sum_k w_k = 1. With the residuals

    e_ks = y_ks - y_k. - sum_j w_j (y_js - y_j.),      s_k^2 = sum_s e_ks^2 / (n - 1)

of n seeds, s_k^2 has the mean (1 - 2 w_k) v_k + a, where v_k are the rows' variances and a = sum_j w_j^2 v_j. These
equations give v_k, with so few seeds only roughly. It is moderated with d = 4 (Smyth 2004, "Linear models and empirical
Bayes methods for assessing differential expression", section 4):

    v_k <- (d v + (n - 1) v_k) / (d + n - 1),      T_k = m_k / sqrt((v_k + v_0) / n)

where v is the mean of the rows' variances. One seed of one row may be far off, as where a training collapses for a
while; the others should not pay for it. In a table of four or more rows, one whose squares around the seeds' medians
are more than 8 times those of the median row weighs less, in proportion; and in v, another row's variance counts for at
most 8 times the median s_k^2, its own in full (after Phipson et al. 2016, "Robust hyperparameter estimation protects
against hypervariable genes", who give such rows fewer degrees of freedom).

**Critical values.** c_j is the 96.25 % quantile of the largest |T| of j rows, over 40,000 tables without any difference
whose row variances are scaled inverse chi-squared with 4 degrees of freedom; the tables are drawn with a fixed seed and
have the same seeds missing. Rows in the order of |T| are decided while |T| > c_j for the j rows that are left (the
step-down of Holm 1979, with the maximum instead of Bonferroni's bound, as in Dunnett and Tamhane 1991). With two rows
all of this is Student's paired t-test at 95 %.

**Intervals.** m_k +- c_(K-1) sqrt((v_k + v_0)/n), cut at no difference on the near side where the step-down has decided
on which side the row lies: a row is decided if and only if its interval excludes "no difference".

**Equality.** The interval of the same kind for 92.5 %.

**Rows that stand out.** The pooled variance says little of a row that nearly repeats the baseline, or that is far
noisier than all others. Where the variance of a row's differences, divided by the median of the rows', lies outside the
central 99.9 % of what tables without differences have, the row is judged by its own differences alone: Student's
interval at 1 - 5 %/(K - 1), Bonferroni's share, and equality at 1 - 10 %/(K - 1); the others are judged without it.

Differs from limma: d is given instead of estimated, since tables of two or three rows cannot tell it, and the quantiles
are drawn instead of Student's, since v is estimated from the same few rows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import student_quantile

ALPHA = 0.05
_NOMINAL = 0.0375
PRIOR = 4  # d: degrees of freedom that all rows together give the variance of one
_TABLES, _CHUNK = 40_000, 4_000
_LARGE = 500  # numbers of a table, rows x seeds, from which on fewer tables are drawn at a time
_COMPARABLE = 4  # rows from which on their median tells that one is unlike the others
_FAR = 8  # times the median of the rows' squares, beyond which a row counts less for the others
_USUAL = 0.999  # share of the rows of tables without differences that do not stand out


class Effects(NamedTuple):
    """Of each row but the first, (K-1,): mean difference, its standard error, and half widths of the interval, of the
    row's own step (infinite after the first row that is not decided), and of equality."""

    mean: np.ndarray
    error: np.ndarray
    half: np.ndarray
    decides: np.ndarray
    equal: np.ndarray


def effects(y: np.ndarray, there: np.ndarray) -> Effects:
    """What a table says of its rows.

    Args:
        y: (K, S) the rows; any finite number where a value is missing.
        there: (K, S) whether there is a value; the first row and each other have at least two seeds in common.
    """
    out = stand_out(y, there)
    out |= out.any() & (len(out) - out.sum() == 1)  # the last one is not a table
    found = Effects(*(np.empty(len(out)) for _ in Effects._fields))
    for k in np.flatnonzero(out):
        pair = [0, k + 1]
        mean, error = statistics(y[pair], there[pair])
        degrees = int((there[0] & there[k + 1]).sum()) - 1
        half, equal = (student_quantile(1 - share * ALPHA / len(out), degrees) for share in (1, 2))
        for column, value in zip(found, (mean, error, half * error, half * error, equal * error), strict=True):
            column[k] = value[0]
    if not out.all():
        rows = [0, *(np.flatnonzero(~out) + 1)]
        mean, error = statistics(y[rows], there[rows])
        half, decides, equal = critical_values(np.abs(mean) / np.maximum(error, 1e-300), there[rows])
        for column, value in zip(found, (mean, error, half * error, decides * error, equal * error), strict=True):
            column[~out] = value
    return found


def stand_out(y: np.ndarray, there: np.ndarray) -> np.ndarray:
    """(.., K-1) which rows of one or many tables are judged by themselves; none of fewer than four rows."""
    if len(there) < _COMPARABLE:
        return np.zeros((*y.shape[:-2], len(there) - 1), dtype=bool)
    low, high = _usual(there.tobytes(), there.shape)
    ratio = _relative_variance(y, there)
    return (ratio < low) | (ratio > high)


def _relative_variance(y: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Variance of each row's differences over the median of all rows', (.., K-1); 1 where all are 0."""
    pairs = there[1:] & there[0]
    difference = (y[..., 1:, :] - y[..., :1, :]) * pairs
    mean = difference.sum(-1, keepdims=True) / pairs.sum(-1, keepdims=True)
    variance = ((difference - mean * pairs) ** 2).sum(-1) / (pairs.sum(-1) - 1)
    return (variance + 1e-300) / (np.median(variance, -1, keepdims=True) + 1e-300)


@lru_cache(maxsize=64)
def _usual(there: bytes, shape: tuple[int, int]) -> tuple[float, float]:
    """The central part of the relative variances of tables without differences."""
    drawn = without_differences(shape, np.random.default_rng(1), fewer(_TABLES // 2, *shape))
    ratio = _relative_variance(drawn, _mask(there, shape))
    low, high = np.quantile(ratio, [(1 - _USUAL) / 2, (1 + _USUAL) / 2])
    return float(low), float(high)


def statistics(y: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m_k and its standard error, each (.., K-1).

    Args:
        y: (.., K, S) the rows of one or many tables; any finite number where a value is missing.
        there: (K, S) whether there is a value; the first row and each other have at least two seeds in common.
    """
    pairs = there[1:] & there[0]
    difference = (y[..., 1:, :] - y[..., :1, :]) * pairs
    mean = difference.sum(-1) / pairs.sum(-1)
    if len(there) == 2:
        variance = ((difference - mean[..., None] * pairs) ** 2).sum(-1) / (pairs.sum(-1) - 1)
        return mean, np.sqrt(variance / pairs.sum(-1))
    variance = moderated(y, there)
    return mean, np.sqrt((variance[..., 1:] + variance[..., :1]) / pairs.sum(-1))


def moderated(y: np.ndarray, there: np.ndarray) -> np.ndarray:
    """v_k of three or more rows, (.., K)."""
    rows, n = len(there), there.sum(-1)
    own = (y - ((y * there).sum(-1) / n)[..., None]) * there
    weight = _weights(own, there)
    common = (weight[..., None] * own).sum(-2, keepdims=True)
    common /= np.maximum((weight[..., None] * there).sum(-2, keepdims=True), 1e-300)
    squares = (((own - common) * there) ** 2).sum(-1) / (n - 1)
    weight /= weight.sum(-1, keepdims=True)
    share = weight**2 / (1 - 2 * weight)
    of_common = (share * squares).sum(-1, keepdims=True) / (1 + share.sum(-1, keepdims=True))
    variance = np.maximum((squares - of_common) / (1 - 2 * weight), 0)
    most = _FAR * np.median(squares, -1, keepdims=True) if rows >= _COMPARABLE else np.inf
    beyond = np.maximum(variance - most, 0)
    pooled = (variance - beyond).mean(-1, keepdims=True) + beyond / rows
    return (PRIOR * pooled + (n - 1) * variance) / (PRIOR + n - 1)


def _weights(own: np.ndarray, there: np.ndarray) -> np.ndarray:
    """w_k before they are scaled, (.., K), of rows without their means; three or more of them are 1, as `_FAR` >= 2."""
    if len(there) < _COMPARABLE:
        return np.ones(own.shape[:-1])
    squares = (((own - np.median(own, -2, keepdims=True)) * there) ** 2).sum(-1) / (there.sum(-1) - 1)
    most = _FAR * np.median(squares, -1, keepdims=True)
    return np.where(squares <= most, 1.0, most / np.maximum(squares, 1e-300))


def critical_values(largest: np.ndarray, there: np.ndarray) -> tuple[float, np.ndarray, float]:
    """c of the intervals, c of the row's own step (infinite after the first row that is not decided), c of equality.

    Args:
        largest: (K-1,) the rows' |T|.
        there: as in `statistics`.
    """
    if len(there) == 2:
        degrees = int((there[0] & there[1]).sum()) - 1
        half, equal = (student_quantile(1 - alpha, degrees) for alpha in (ALPHA, 2 * ALPHA))
        return half, np.array([half]), equal
    order = np.argsort(-largest, kind="stable")
    half, steps, equal = _quantiles(there.tobytes(), there.shape, () if there.all() else tuple(order.tolist()))
    failed = np.maximum.accumulate(largest[order] <= steps)
    decides = np.empty(len(order))
    decides[order] = np.where(failed, np.inf, steps)
    return half, decides, equal


@lru_cache(maxsize=256)
def _quantiles(there: bytes, shape: tuple[int, int], order: tuple[int, ...]) -> tuple[float, np.ndarray, float]:
    """c of the intervals, c of each step, c of equality; rows with all seeds have one distribution in any order."""
    null = _null(there, *shape)
    maxima = np.maximum.accumulate(null[:, list(order or range(shape[0] - 1))[::-1]], axis=1)
    steps = np.quantile(maxima, 1 - _NOMINAL, axis=0)[::-1]
    return float(steps[0]), steps, float(np.quantile(maxima[:, -1], 1 - 2 * _NOMINAL))


@lru_cache(maxsize=4)  # of 250 rows it has 80 MB
def _null(there: bytes, rows: int, seeds: int, tables: int = _TABLES) -> np.ndarray:
    """|T| of tables without any difference, (tables, K-1)."""
    random, found = np.random.default_rng(0), []
    chunk = fewer(_CHUNK, rows, seeds)
    for _ in range(math.ceil(tables / chunk)):
        mean, error = statistics(without_differences((rows, seeds), random, chunk), _mask(there, (rows, seeds)))
        found.append(np.abs(mean) / error)
    return np.concatenate(found)


def fewer(tables: int, rows: int, seeds: int) -> int:
    """As many tables as fit the memory of those with `_LARGE` numbers: each row of a table is one more draw."""
    return tables if rows * seeds <= _LARGE else max(1, tables * _LARGE // (rows * seeds))


def without_differences(shape: tuple[int, int], random: np.random.Generator, tables: int) -> np.ndarray:
    """(tables, K, S) normal numbers whose row variances are scaled inverse chi-squared."""
    deviation = np.sqrt(PRIOR / random.chisquare(PRIOR, (tables, shape[0], 1)))
    return random.standard_normal((tables, *shape)) * deviation


def _mask(there: bytes, shape: tuple[int, int]) -> np.ndarray:
    return np.frombuffer(there, dtype=bool).reshape(shape)


@lru_cache(maxsize=256)
def largest(rows: int, n: int) -> float:
    """c_(K-1) of a table with all seeds."""
    if rows == 2:
        return student_quantile(1 - ALPHA, n - 1)
    tables = _TABLES if rows * n <= 40 else fewer(2 * _CHUNK, rows, n)  # the tails of few seeds are heavy
    null = _null(np.ones((rows, n), dtype=bool).tobytes(), rows, n, tables)
    return float(np.quantile(null.max(1), 1 - _NOMINAL))
