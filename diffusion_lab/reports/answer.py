"""The answer of a table in one sentence or two: which rows differ from the baseline, by how much, and what is not seen.

    At n = 5, speed, min_snr and x0 are better than ddpm, by 0.9 to 1.1. For 11 others it is not decided; their
    intervals leave no difference above 0.4. A new comparison with 8 seeds, fixed before it, would show 0.25.

"Better" and "worse" are the verdicts, which are corrected for the number of rows; the intervals are those of each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.tables import Row
from diffusion_lab.reports.verdicts import CLAIM_SEEDS

SHOWN = 4  # names that a sentence holds


def answer(rows: Sequence[Row], size: float | None = None) -> str:
    """The sentences; for rows in which nothing can be compared, what is missing.

    Args:
        rows: from `summarise`, with the baseline among them.
        size: difference for which the verdicts have a number of seeds.
    """
    finished = [row for row in rows if row.metric is not None]
    if not finished:
        return "No run has finished with this metric, so there is nothing to compare."
    base = next((row for row in rows if row.is_baseline), finished[0])
    compared = [row for row in rows if row.difference is not None and row.verdict is not None]
    if not compared and any(row.difference is not None for row in rows):
        return (
            f"Neither direction of this metric is better, so no row is better or worse than {base.group.label}: the "
            "differences and their intervals are shown, without a verdict."
        )
    if not compared:
        return f"Only {base.group.label} can be compared; a second method with the same seeds shows a difference."
    counts = sorted({row.difference.n for row in compared if row.difference})
    if counts[-1] < CLAIM_SEEDS:
        seeds = "one seed" if counts[-1] == 1 else f"{counts[-1]} seeds"
        return f"With {seeds} nothing can be claimed (n = {_range(counts)}); {CLAIM_SEEDS} or more make a comparison."
    base_name = base.group.label
    said = [_decided(compared, word, base_name) for word in ("better", "worse")]
    whole = " and ".join(part for part in said if part)
    first = f"At n = {_range(counts)}, {whole}." if whole else ""
    return " ".join(part for part in (first, _open(compared, base_name, bool(whole), counts, size)) if part)


def _decided(rows: Sequence[Row], word: str, base: str) -> str:
    """`a, b and c are better than ddpm, by 0.9 to 1.1`, the largest difference first."""
    found = [row for row in rows if row.verdict and row.verdict.word == word]
    if not found:
        return ""
    found.sort(key=lambda row: -abs(row.difference.mean if row.difference else 0.0))
    sizes = [abs(row.difference.mean) for row in found if row.difference]
    by = _number(sizes[0]) if len(found) == 1 else f"{_number(sizes[-1])} to {_number(sizes[0])}"
    verb = "is" if len(found) == 1 else "are"
    return f"{_names([row.group.label for row in found])} {verb} {word} than {base}, by {by}"


def _open(rows: Sequence[Row], base: str, others: bool, counts: Sequence[int], size: float | None) -> str:
    """What is not decided: the largest difference that the intervals leave, and how many seeds would show `size`, if
    that is not one of those that they exclude."""
    found = [row for row in rows if row.verdict and row.verdict.word == "not decided"]
    same = [row.group.label for row in rows if row.verdict and row.verdict.word == "identical"]
    parts = [f"{_names(same)} {'is' if len(same) == 1 else 'are'} identical to {base}."] if same else []
    if found:
        differences = [row.difference for row in found if row.difference]
        ends = [abs(end) for one in differences for end in (one.low, one.high) if end is not None]
        which = f"For {len(found)} other{'s' * (len(found) > 1)} it" if others else _who(found, base, counts)
        it = "its interval leaves" if len(found) == 1 else "their intervals leave"
        parts.append(f"{which} is not decided; {it} no difference above {_number(max(ends))}.")
        seeds = [row.verdict.seeds for row in found if row.verdict and row.verdict.seeds]
        if size and len(seeds) == len(found) and size < max(ends):
            parts.append(f"A new comparison with {max(seeds)} seeds, fixed before it, would show {_number(size)}.")
    return " ".join(parts)


def _who(found: Sequence[Row], base: str, counts: Sequence[int]) -> str:
    names = _names([row.group.label for row in found])
    verb = "differs" if len(found) == 1 else "differ"
    return f"At n = {_range(counts)}, whether {names} {verb} from {base}"


def _names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 4 more`."""
    if len(names) > SHOWN + 1:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _number(value: float) -> str:
    """Two significant digits."""
    return f"{float(f'{value:.2g}'):g}"
