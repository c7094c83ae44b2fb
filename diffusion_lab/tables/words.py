"""What a table says of a paper's statements, one sentence for each row and column."""

from __future__ import annotations

from typing import NamedTuple

from diffusion_lab.reports.cells import with_interval
from diffusion_lab.reports.verdicts import CLAIM_SEEDS
from diffusion_lab.tables.layout import places_of, published_number
from diffusion_lab.tables.results import FAILS, HOLDS, OPEN, Outcome, Results, published_baseline
from diffusion_lab.tables.table import reference_title


class Said(NamedTuple):
    """What there is to say of a row in a column.

    Attributes:
        where: the row, and the column if there are several.
        paper: what the paper has.
        here: the measured difference with its interval, and n.
        verdict: whether the paper's statement holds here, and what would overturn or decide it.
    """

    where: str
    paper: str
    here: str
    verdict: str


def sentences(results: Results) -> list[tuple[str, str]]:
    """(the outcome, the sentence) of each row but the baseline in each column."""
    return [(outcome.word, sentence(results, outcome)) for outcome in results.outcomes]


def sentence(results: Results, outcome: Outcome) -> str:
    """`Ours, linear: the paper has 2.94 against 3.19 of DDPM; here −0.52 [−0.90, −0.14], n = 3: holds here; ...`"""
    where, paper, here, verdict = said_of(results, outcome)
    return f"{where}: the paper {paper}; here {here}: {verdict}."


def said_of(results: Results, outcome: Outcome) -> Said:
    """The parts of the sentence about a row in a column."""
    cell, table = outcome.cell, results.table
    base, theirs = reference_title(table, cell.column), published_baseline(table, cell)
    where = f"{cell.row.title}, {cell.column.title}" if len(table.columns) > 1 else cell.row.title
    if cell.published is not None and theirs is not None:
        ours, reference = published_number(table, cell.published), published_number(table, theirs)
        paper = f"has {ours} against {reference} of {base}"
    elif outcome.stated:
        paper = f"says {outcome.stated} than {base}, without a number"
    else:
        paper = "has no number"
    return Said(where, paper, _measured(results, outcome), _conclusion(results, outcome))


def summary(results: Results) -> str:
    """How many of the paper's statements hold here; empty if it makes none."""
    words = [outcome.word for outcome in results.outcomes if outcome.word]
    if not words:
        return ""
    held, failed = words.count(HOLDS), words.count(FAILS)
    undecided = len(words) - held - failed
    return (
        f"Of {len(words)} {'statement' if len(words) == 1 else 'statements'} of the paper "
        f"{held} {'holds' if held == 1 else 'hold'} here, {failed} {'does' if failed == 1 else 'do'} not, "
        f"{undecided} {'is' if undecided == 1 else 'are'} not decided."
    )


def _measured(results: Results, outcome: Outcome) -> str:
    difference, places = outcome.cell.difference, places_of(results, outcome.cell.column)
    assert difference is not None
    text = with_interval(difference, places, signed=True).replace(" (n=1, no interval)", "")
    return f"{text}, n = {difference.n}"


def _conclusion(results: Results, outcome: Outcome) -> str:
    verdict = outcome.cell.verdict
    assert verdict is not None
    if outcome.word in (HOLDS, FAILS):
        return f"{outcome.word}; would be overturned by {results.table.overturned_by}"
    if verdict.word == "identical":
        return "identical to the baseline for every seed"
    if outcome.word == OPEN or not verdict.decided:
        return f"{OPEN}; {_needed(outcome)}"
    return f"{outcome.measured} here; the paper states neither"


def _needed(outcome: Outcome) -> str:
    difference = outcome.cell.difference
    assert difference is not None
    if difference.n < CLAIM_SEEDS:
        return f"a verdict takes at least {CLAIM_SEEDS} seeds"
    if outcome.seeds is None:
        return "no number of seeds below 10,000 would decide a difference this small"
    return f"about {outcome.seeds:,} seeds would decide a difference of this size"
