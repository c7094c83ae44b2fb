"""Verdicts on the differences of one table: one per row, corrected for the number of rows.

The rows of a table are tested together. With p_k of the paired t-test of row k, corrected by Holm over all rows that
have 3 or more pairs of seeds, a row is "better" or "worse" if its corrected p is at most 5 %, else "not decided":
with no difference anywhere, the whole table has a false verdict with a probability of at most 5 %. The plain interval
is that of the row alone. A row whose differences are all exactly 0 repeats the baseline; it is called "identical" and
is not tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from diffusion_lab.intervals import holm, paired_difference, seeds_needed, width_ratio

CLAIM_SEEDS = 3  # fewer pairs support no claim
NO_CLAIM = "no claim"
ALPHA = 0.05
SHARE = 0.1  # largest default difference for the number of seeds, as a share of the baseline's mean

Pairs = Sequence[tuple[float, float]]  # (the row's, the baseline's) value of each common seed


class Verdict(NamedTuple):
    """The verdict on the pairs of a row.

    Attributes:
        word: better, worse, not decided, identical or no claim.
        p: corrected p; None if the row was not tested.
        seeds: number of pairs needed for a difference of the given size; None: unknown or more than 9999.
        ratio: width of the unpaired interval over that of the paired one; None if one of them has no width.
    """

    word: str
    p: float | None = None
    seeds: int | None = None
    ratio: float | None = None

    @property
    def decided(self) -> bool:
        return self.word in ("better", "worse")


def judge(rows: Sequence[Pairs], rising: bool, size: float | None = None) -> list[Verdict | None]:
    """A verdict per row, None for one without pairs.

    Args:
        rows: the pairs of each row; empty for the baseline and for rows that cannot be compared.
        rising: whether a larger value is better.
        size: difference for which the number of seeds is computed; None: not computed.
    """
    tested = [i for i, pairs in enumerate(rows) if len(pairs) >= CLAIM_SEEDS and any(a != b for a, b in pairs)]
    sides = {i: ([a for a, _ in rows[i]], [b for _, b in rows[i]]) for i in tested}
    differences = {i: paired_difference(*sides[i]) for i in tested}
    corrected = dict(zip(tested, holm([differences[i].p_value or 0.0 for i in tested]), strict=True))
    verdicts: list[Verdict | None] = []
    for i, pairs in enumerate(rows):
        if i not in corrected:
            repeats = len(pairs) >= CLAIM_SEEDS
            verdicts.append(Verdict("identical" if repeats else NO_CLAIM) if pairs else None)
            continue
        word = "not decided"
        if corrected[i] <= ALPHA:
            word = "better" if (differences[i].mean > 0) == rising else "worse"
        std = differences[i].std or 0.0
        seeds = seeds_needed(std, size, ALPHA / len(tested)) if size else None
        verdicts.append(Verdict(word, corrected[i], seeds, width_ratio(*sides[i])))
    return verdicts


def usual_size(mean: float | None, half_widths: Sequence[float] = ()) -> float | None:
    """A tenth of the baseline's mean, rounded to one digit; None without a mean or of 0.

    Half of the widest interval's half width where that is smaller: the intervals say enough of larger differences.

    Args:
        mean: of the baseline.
        half_widths: of the intervals of the differences; those of 0 are left out.
    """
    if not mean or not math.isfinite(mean):
        return None
    seen = [width / 2 for width in (max(half_widths, default=0.0),) if width > 0]
    return float(f"{min([abs(mean) * SHARE, *seen]):.0e}")
