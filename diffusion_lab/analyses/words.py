"""Numbers and lists in the sentences of analyses."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST = 6  # groups in words


def plus_minus(value: float, half: float) -> str:
    """`0.43 ± 0.05`, with as many decimals as two digits of the half width need; without one, three digits."""
    if not math.isfinite(half) or half <= 0 or not math.isfinite(value):
        return f"{value:,.3g}"
    decimals = 1 - math.floor(math.log10(half))
    if not -4 <= decimals <= 6:
        return f"{value:.3g} ± {half:.1g}"
    shown = max(decimals, 0)
    return f"{round(value, decimals):,.{shown}f} ± {round(half, decimals):,.{shown}f}"


def joined(parts: Sequence[str]) -> str:
    """The first parts, separated by semicolons."""
    return "; ".join(parts[:MOST]) + ("; and so on" if len(parts) > MOST else "")
