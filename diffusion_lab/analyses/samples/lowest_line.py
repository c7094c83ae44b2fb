"""Which of several curves is the lowest at each place, and where that is decided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from diffusion_lab.analyses.seeds import with_error


def winners(errors: np.ndarray, lines: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """The lines' means and the lowest at each place.

    Args:
        errors: (R,n,K), of R rows for the same n images.
        lines: the rows that each of L lines is the mean of, one per seed.

    Returns:
        line_mean and line_half (L,K); best (K,), the lowest line; decided (K,), whether the next is above it by more
        than the half width of their difference; lower (L,L,K), 1 where the first line is below the second by more than
        that, -1 where it is above, else 0; worst_ratio (L,), the largest ratio of a line to the lowest, and
        worst_at (L,), its place.
    """
    error = errors.std(1, ddof=1) / errors.shape[1] ** 0.5
    pairs = [with_error(errors.mean(1), error, list(rows)) for rows in lines]
    middle, half = (np.stack(some) for some in zip(*pairs, strict=True))
    width = np.hypot(half[:, None], half[None])  # (L,L,K)
    for i, j in combinations(range(len(lines)), 2):
        if len(lines[i]) == len(lines[j]) == 1:  # of the same images and noises
            difference = errors[lines[i][0]] - errors[lines[j][0]]  # (n,K)
            width[i, j] = width[j, i] = 2 * difference.std(0, ddof=1) / len(difference) ** 0.5
    gap = middle[None] - middle[:, None]
    lower = np.sign(gap) * (np.abs(gap) > width)
    best, places = middle.argmin(0), np.arange(middle.shape[1])
    others = lower[best, :, places].sum(1)  # the best is below all others
    ratio = middle / np.maximum(middle.min(0), np.finfo(float).tiny)
    return {
        "line_mean": middle,
        "line_half": half,
        "best": best,
        "decided": others == len(lines) - 1,
        "lower": lower.astype(np.int8),
        "worst_ratio": ratio.max(1),
        "worst_at": ratio.argmax(1),
    }


def crossings(places: np.ndarray, lower: np.ndarray) -> list[list[int]]:
    """[first line, second line, a, b]: the first is decidedly lower up to place a, and the second from b on.

    Of each pair its first crossing, for `lower` (L,L,K) of `winners`.
    """
    found = []
    for i, j in combinations(range(len(lower)), 2):
        sign, at = lower[i, j][lower[i, j] != 0], places[lower[i, j] != 0]
        change = np.flatnonzero(np.diff(sign))
        if len(change):
            first, second = (i, j) if sign[change[0]] > 0 else (j, i)
            found.append([first, second, int(at[change[0]]), int(at[change[0] + 1])])
    return found


def segments(places: np.ndarray, best: np.ndarray, decided: np.ndarray) -> list[list[Any]]:
    """[first place, last place, line] of each run of decided places with one lowest line, in their order.

    Undecided places between two runs of the same line do not end the run.
    """
    found: list[list[Any]] = []
    for place, line in zip(places[decided].tolist(), best[decided].tolist(), strict=True):
        if found and found[-1][2] == line:
            found[-1][1] = place
        else:
            found.append([place, place, line])
    return found
