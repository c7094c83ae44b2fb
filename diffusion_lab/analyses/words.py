"""Numbers and lists in the sentences of analyses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST = 6  # groups in words


def plus_minus(value: float, half: float, unknown: str | None = None) -> str:
    """`0.43 ± 0.05`, with as many decimals as two digits of the half width need; without one, three digits.

    Args:
        value: the number.
        half: half the width of its interval.
        unknown: what is written for a number that is not finite; None for `nan` or `inf`.
    """
    if unknown is not None and not math.isfinite(value):
        return unknown
    if not math.isfinite(half) or half <= 0 or not math.isfinite(value):
        return f"{value:,.3g}"
    decimals = 1 - math.floor(math.log10(half))
    if not -4 <= decimals <= 6:
        return f"{value:.3g} ± {half:.1g}"
    shown = max(decimals, 0)
    return f"{round(value, decimals):,.{shown}f} ± {round(half, decimals):,.{shown}f}"


def joined(parts: Sequence[str], most: int = MOST, by: str = "; ") -> str:
    """The first of what is said of each group, separated by `by`, and how many more there are."""
    more = [f"and so on for {len(parts) - most} more"] if len(parts) > most else []
    return by.join([*parts[:most], *more])


def capitalised(text: str, groups: Sequence[Mapping[str, Any]] = ()) -> str:
    """The text with a capital letter first, unless it begins with the `name` of a group, whose spelling is kept."""
    if any(group["name"] and text.startswith(group["name"]) for group in groups):
        return text
    return f"{text[:1].upper()}{text[1:]}"
