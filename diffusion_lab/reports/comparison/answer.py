"""The answer of a table in a sentence or two.

    At n = 5, logit_normal is better: it has 0.70 [0.60, 0.80] times the fd1k_digits of uniform over training, and 0.70
    [0.60, 0.90] at the end; loss_second_moment is equal to uniform within 10 %; 3 others are not decided. To decide a
    ratio of 1.1, run a new comparison with 7 seeds.

Of several rows that are better, or worse, the smallest and the largest effect are said; of many, those with the largest
effects are named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from diffusion_lab.intervals import ESTIMANDS
from diffusion_lab.reports.comparison.effects import effect_text
from diffusion_lab.reports.comparison.metrics import directed, metric_names
from diffusion_lab.reports.comparison.rows import Row, Table
from diffusion_lab.verdicts import CLAIM_SEEDS, Word, seeds_needed

SHOWN = 4  # names that a sentence holds


def answer(table: Table) -> str:
    """The sentences; for rows in which nothing can be decided, why, or what is missing."""
    finished = [row for row in table.rows if row.metric is not None]
    if not finished:
        return "No run has finished with this metric, so there is nothing to compare."
    base = table.base.label
    compared = [row for row in table.rows if row.effect is not None]
    first = next(row for row in table.rows if row.group is table.base)
    if not compared and first.metric is None and first.diverged:
        return (
            f"All {first.diverged} seeds of {base} diverged, so nothing is compared with it; use --baseline for "
            "another one."
        )
    if not compared:
        why = {row.unpaired.removeprefix("n/a (").removesuffix(")") for row in finished if row is not first}
        if why:
            return f"No method can be compared with {base} ({', '.join(sorted(why))}); train one with the same seeds."
        return f"Only {base} has a value; train a second method with the same seeds to compare them."
    if table.question.race:
        return race_sentence(table)
    deciding = [row for row in compared if not row.silent]
    if not deciding:
        return loss_sentence(table) or (
            f"Neither direction of this metric is better, so no row is better or worse than {base}: the effects and "
            "their intervals are shown, without a verdict."
        )
    counts = sorted({row.effect.n for row in deciding if row.effect})
    if counts[-1] < CLAIM_SEEDS:
        seeds = "one seed" if counts[-1] == 1 else f"{counts[-1]} seeds"
        return f"With {seeds} there is no verdict (n = {_range(counts)}); it takes at least {CLAIM_SEEDS} seeds."
    said: list[str] = []
    for word in ("better", "worse"):
        said += _decided(table, _with(deciding, word), word, "" if said else f"the {table.metric} of {base}")
    said += _plain(_with(deciding, "equal"), f"equal to {base} {table.question.within}")
    said += _plain(_with(deciding, "identical"), f"identical to {base}")
    open_ones = _with(deciding, "not decided")
    if open_ones:
        who = f"{len(open_ones)} other{'s' * (len(open_ones) > 1)}" if said else names(open_ones)
        said.append(f"{who} {_are(open_ones)} not decided")
    said += _plain(_with(deciding, "no claim"), f"without a verdict, with fewer than {CLAIM_SEEDS} seeds in common")
    return " ".join(part for part in (f"At n = {_range(counts)}, {'; '.join(said)}.", _seeds(table, open_ones)) if part)


def _with(rows: Sequence[Row], word: Word) -> list[Row]:
    return [row for row in rows if row.effect and row.effect.word == word]


def _decided(table: Table, rows: Sequence[Row], word: str, of: str) -> list[str]:
    """`a is better: it has 0.70 [0.60, 0.80] times the fd1k_digits of uniform at the end`, the largest effect first."""
    effects = {row.group.label: row.effect for row in rows if row.effect}
    if not effects:
        return []
    sizes, labels = sorted(effects.values(), key=lambda effect: effect.size), list(effects)
    ratio, when = table.scale == "ratio", ESTIMANDS[table.estimand]
    of = of or f"that of {table.base.label}"
    if len(rows) > 1:
        if len(rows) > SHOWN + 1:
            onto = math.log if ratio else float
            labels.sort(key=lambda label: abs(onto(effects[label].size)), reverse=True)
        ends = [effect_text(one._replace(low=None), table.scale, 3) for one in (sizes[0], sizes[-1])]
        between = " to ".join(dict.fromkeys(ends))
        way = f"they have {between} times {of}" if ratio else f"they differ by {between} from {of}"
        return [f"{listed(labels)} are {word}: {way} {when}"]
    (row,), size = rows, effect_text(sizes[0], table.scale, 3)
    way = f"it has {size} times {of}" if ratio else f"it differs by {size} from {of}"
    beside = ""
    if row.beside and row.beside.low is not None:
        other = ESTIMANDS["training" if table.estimand == "end" else "end"]
        beside = f", and {effect_text(row.beside, table.scale, 3)} {other}"
    return [f"{row.group.label} is {word}: {way} {when}{beside}"]


def _plain(rows: Sequence[Row], what: str) -> list[str]:
    return [f"{names(rows)} {_are(rows)} {what}"] if rows else []


def _are(rows: Sequence[Row]) -> str:
    return "is" if len(rows) == 1 else "are"


def _seeds(table: Table, rows: Sequence[Row]) -> str:
    """How many seeds decide a difference as large as the margin, if that is more than there are."""
    effects = [row.effect for row in rows if row.effect and row.effect.deviation]
    if not effects or not table.band:
        return ""
    size = f"a ratio of {table.question.margin:g}" if table.scale == "ratio" else f"a difference of {table.band:.2g}"
    needed = [seeds_needed(effect.deviation or 0.0, table.band, effect.rows) for effect in effects]
    if None in needed:
        return f"More than 999 seeds would be needed to decide {size}."
    most = max(n for n in needed if n is not None)
    if most <= min(effect.n for effect in effects):
        return ""
    return f"To decide {size}, run a new comparison with {most} seeds."


def race_sentence(table: Table) -> str:
    """Where the verdicts of a race are, and what its report is for."""
    found = [row for row in table.rows if row.metric is not None]
    counts = _range(sorted({row.metric.n for row in found if row.metric}))
    return (
        f"These runs are a race: methods that had lost got no more seeds (n = {counts}), so intervals for a fixed "
        "number of seeds do not hold, and this table has no verdicts. race.md beside the runs says who is worse, with "
        "intervals that hold whenever a race ends."
    )


def loss_sentence(table: Table) -> str:
    """Why a loss does not decide some of the rows, and what could; "" if it decides all."""
    silent = [row for row in table.rows if row.silent == "loss"]
    if not silent:
        return ""
    groups = [row.group for row in table.rows]
    have = [name for name in metric_names(groups) if directed(groups, name)]
    command = f", which these runs have: use --metric {have[0]}" if have else ""
    return (
        f"A sampler or weighting moves where the loss is low, so {table.metric} does not decide between "
        f"{table.base.label} and rows that differ from it in sampler, weighting, prediction or schedule: "
        f"{names(silent)}. What could is excess_loss, bits_per_dim on one schedule, or a distance of samples such as a "
        f"Fréchet distance{command}."
    )


def names(rows: Sequence[Row]) -> str:
    return listed([row.group.label for row in rows])


def listed(labels: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c, d and 4 more`."""
    if len(labels) > SHOWN + 1:
        return f"{', '.join(labels[:SHOWN])} and {len(labels) - SHOWN} more"
    return " and ".join(part for part in (", ".join(labels[:-1]), labels[-1]) if part)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
