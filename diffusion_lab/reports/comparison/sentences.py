"""What is said around a table: its answer, how its rows differ, what its numbers mean and what they assume.

    At n = 5, speed, min_snr and x0 are better than ddpm, by 0.9 to 1.1. 11 others remain undecided; their
    intervals exclude differences above 0.4. To detect a difference of 0.25, run a new comparison with 8 seeds.

"Better" and "worse" are the verdicts, which are corrected for the number of rows; the intervals are those of each row.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from diffusion_lab.reports.comparison.differences import Difference, differences, within
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.rows import Row
from diffusion_lab.reports.comparison.verdicts import ALPHA, CLAIM_SEEDS, NO_CLAIM

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
        return f"Only {base.group.label} has a value; train a second method with the same seeds to compare them."
    counts = sorted({row.difference.n for row in compared if row.difference})
    if counts[-1] < CLAIM_SEEDS:
        seeds = "one seed" if counts[-1] == 1 else f"{counts[-1]} seeds"
        return f"With {seeds} there is no verdict (n = {_range(counts)}); it takes at least {CLAIM_SEEDS} seeds."
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
    """What is not decided: the difference above which the intervals exclude all, and how many seeds detect `size`, if
    that is not one of those."""
    found = [row for row in rows if row.verdict and row.verdict.word == "not decided"]
    same = [row.group.label for row in rows if row.verdict and row.verdict.word == "identical"]
    parts = [f"{_names(same)} {'is' if len(same) == 1 else 'are'} identical to {base}."] if same else []
    if found:
        differences = [row.difference for row in found if row.difference]
        ends = [abs(end) for one in differences for end in (one.low, one.high) if end is not None]
        which = f"{len(found)} other{'s' * (len(found) > 1)}" if others else _who(found, base, counts)
        verb, it = ("remains", "its interval excludes") if len(found) == 1 else ("remain", "their intervals exclude")
        parts.append(f"{which} {verb} undecided; {it} differences above {_number(max(ends))}.")
        seeds = [row.verdict.seeds for row in found if row.verdict and row.verdict.seeds]
        if size and len(seeds) == len(found) and size < max(ends):
            parts.append(f"To detect a difference of {_number(size)}, run a new comparison with {max(seeds)} seeds.")
    return " ".join(parts)


def _who(found: Sequence[Row], base: str, counts: Sequence[int]) -> str:
    one = len(found) == 1
    difference = "the difference" if one else "the differences"
    return f"At n = {_range(counts)}, {difference} of {_names([row.group.label for row in found])} to {base}"


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


def unnamed_difference_sentences(groups: Sequence[Group], base: Group) -> list[str]:
    """One sentence for all rows with the same differences from the baseline beyond their names; empty without any."""
    rows: dict[str, list[str]] = {}
    for group in groups:
        words = [difference for difference in unnamed_differences(group, base) if difference.key not in group.said]
        if words:
            rows.setdefault(", ".join(map(str, words)), []).append(group.label)
    if not rows:
        return []
    return [
        f"Besides its name, {', '.join(labels)} differs from the baseline {base.label} in: {text}."
        if len(labels) == 1
        else f"Besides their names, {', '.join(labels)} differ from the baseline {base.label} in: {text}."
        for text, labels in rows.items()
    ]


def unnamed_differences(group: Group, base: Group) -> list[Difference]:
    """The differences of a group from the baseline that the names do not imply; empty for the baseline itself."""
    if group is base or not group.config or not base.config:
        return []
    own, other = group.run_config, base.run_config
    different = differences(own, other)
    if own.expected is None or other.expected is None:  # leave out a part that is in the name
        names = {group.name, base.name}
        different = [one for one in different if not (one.own == group.name and one.base in names)]
    if group.by:
        different = [one for one in different if not within(one.key, group.by)]
        methods = [str(one.runs[0].info.get("method")) for one in (group, base)]
        if methods[0] != methods[1] and not any(methods[0] == value for value in group.said.values()):
            different.insert(0, Difference("method", *methods))
    return different


def legend(rows: Sequence[Row], size: float | None = None) -> str:
    """Explanation of the numbers and of their limits."""
    tested = sum(row.tested for row in rows)
    text = "mean over finished seeds [95 % interval of Student's t]; differences are paired by seed, each interval is "
    text += "that of its row alone; "
    if tested:
        of_all = f", corrected for the {tested} rows by Holm's method" if tested > 1 else ""
        text += (
            f"verdict: p of the paired t-test{of_all}; with no difference anywhere the table has a false verdict with "
            f"a probability of at most {ALPHA:.0%}; bold: a verdict; "
        ).replace("5%", "5 %")
        if size:
            text += (
                f"seeds for ±{size:g}: approximate number of pairs that detects a true difference of that size with a "
                "probability of 80 %, by the observed spread; "
            )
    elif any(row.verdict is not None and row.verdict.word == NO_CLAIM for row in rows):
        text += f"with fewer than {CLAIM_SEEDS} seeds nothing is set in bold: no claim; "
    elif any(row.difference is not None and row.verdict is None for row in rows):
        text += "neither direction of this metric is better, so there is no verdict and nothing is set in bold; "
    return text + (
        "cost: time per image relative to the baseline's, paired by seed: geometric mean, and the interval of its "
        "logarithm; comparable only between runs on equal machines"
    )


def cautions(rows: Sequence[Row]) -> list[str]:
    """The assumptions of the verdicts, and the effect of pairing."""
    verdicts = [row.verdict for row in rows if row.verdict and row.tested]
    if not verdicts:
        return []
    notes = [
        "Fix the number of seeds before the first run: adding seeds from n = 3 to 12 until the plain "
        "interval excludes 0 finds a difference where there is none in 18 % of the cases instead of 5 % (simulated)."
    ]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    if ratios:
        spread = f" (median of the rows; {min(ratios):.2g} to {max(ratios):.2g})" if len(ratios) > 1 else ""
        notes.append(f"Unpaired intervals would be {statistics.median(ratios):.2g} times as wide{spread}.")
    return notes


def of_other_hours(rows: Sequence[Row], baseline: str) -> list[str]:
    """Why some of the costs have no interval; empty if all that could have one have it."""
    names = [row.group.label for row in rows if row.cost and row.cost.n > 1 and not row.same_hours]
    if not names:
        return []
    return [
        f"The cost of {', '.join(names)} has no interval: their runs and those of {baseline} were not trained in the "
        "same hours, so the ratio includes other load on the machine. In one sweep, methods alternate seed by seed."
    ]
