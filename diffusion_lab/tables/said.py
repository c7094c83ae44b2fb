"""What a table says of the paper: the answer, and a sentence for each claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diffusion_lab.tables.judged import OVER_TRAINING
from diffusion_lab.tables.results import EQUAL, FAILS, HOLDS, OPEN, Outcome, Results, TableCell, published_baseline
from diffusion_lab.tables.table import cell_titles, reference_title
from diffusion_lab.tables.text import (
    compared_words,
    diverged_words,
    places_of,
    published_number,
    verdict_words,
    within,
)
from diffusion_lab.verdicts import CLAIM_SEEDS

MOST_SEEDS = 999  # that are tried
VERBS = {  # of one claim, and of several
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    EQUAL: ("ends in equality", "end in equality"),
    OPEN: ("remains undecided", "remain undecided"),
}


class ClaimLine(NamedTuple):
    """What there is to say of a row in a column; the texts of a table's cells, which hold one number at most.

    Attributes:
        where: the row, and the column if there are several.
        claim: whether the paper has the row lower or higher than the baseline; empty: it makes no claim.
        published, baseline: the paper's numbers of the row and of the baseline; empty without them.
        compared, interval: the measured ratio or difference in the cell that decides.
        verdict: whether the claim holds here, and how many seeds diverged.
        beside, beside_interval: the same in the cell beside it; empty if there is one cell.
        seeds: how many would decide a difference of the measured size; empty if it is decided or unknown.
    """

    where: str
    claim: str
    published: str
    baseline: str
    compared: str
    interval: str
    verdict: str
    seeds: str
    beside: str
    beside_interval: str


def sentences(results: Results) -> list[tuple[str, str]]:
    """(the outcome, the sentence) of each row but the baseline in each column."""
    return [(outcome.word, sentence(results, outcome)) for outcome in results.outcomes]


def sentence(results: Results, outcome: Outcome) -> str:
    """`Ours, linear: the paper claims 2.94 against 3.19 of DDPM (FID); here 0.83 [0.71, 0.97] times DDPM's fd1k_digits
    at the end, n = 3: holds here; ...`"""
    said, table, cell = said_of(results, outcome), results.table, outcome.cell
    base, when = reference_title(table, cell.column), when_words(results, cell)
    if said.published and said.baseline:
        mean = f", {cell.cell}" if cell.cell == OVER_TRAINING else ""
        paper = f"claims {said.published} against {said.baseline} of {base} ({table.unit}{mean})"
    elif said.claim:
        paper = f"claims a {said.claim} {table.unit} than {base}, without a number"
    else:
        paper = "makes no claim"
    here = " ".join(filter(None, (said.compared, said.interval)))
    what = f"times that of {base}" if results.scale == "ratio" else f"to {base}"
    beside = ""
    if outcome.beside is not None and said.beside:
        beside = f"; {' '.join((said.beside, said.beside_interval)).strip()}{when_words(results, outcome.beside)}"
    lost = "".join(f"; {words}" for words in _lost(results, cell))
    return (
        f"{said.where}: the paper {paper}; here {here} {what}{when} ({results.values.quantity}, n = "
        f"{outcome.compared.n}{beside}): {_conclusion(results, outcome)}{lost}."
    )


def _lost(results: Results, cell: TableCell) -> list[str]:
    """Which seeds diverged, of the row and of its baseline."""
    own, baseline = diverged_words(results, cell.row, cell.column), results.table.baseline_of(cell.column)
    found = [own] if own else []
    if baseline and (theirs := diverged_words(results, results.table.row(baseline), cell.column)):
        found.append(f"{results.table.row(baseline).title}: {theirs}")
    return found


def when_words(results: Results, cell: TableCell) -> str:
    """` over training`, ` at the last step`; empty where a column has one cell."""
    several = len(cell_titles(cell.column)) > 1
    return "" if not several else f" {OVER_TRAINING}" if cell.cell == OVER_TRAINING else " at the last step"


def said_of(results: Results, outcome: Outcome) -> ClaimLine:
    """The parts of the sentence about a row in a column."""
    cell, table = outcome.cell, results.table
    where = f"{cell.row.title}, {cell.column.title}" if len(table.columns) > 1 else cell.row.title
    theirs = published_baseline(results, cell)
    ours, base = ("" if n is None else published_number(table, n) for n in (cell.published, theirs))
    places = places_of(results, cell.column)
    measured = f"{outcome.measured} here" if outcome.measured else verdict_words(results, cell)
    word = f"{EQUAL} {within(table)}" if outcome.word == EQUAL else outcome.word or measured
    lost = results.diverged.get((cell.row.name, cell.column.name), ())
    theirs = results.diverged.get((table.baseline_of(cell.column), cell.column.name), ())
    word += f"; {len(lost)} diverged" if lost else f"; {len(theirs)} of the baseline diverged" if theirs else ""
    many = outcome.compared.word == OPEN
    seeds = "" if not many else f"over {MOST_SEEDS}" if outcome.seeds is None else f"{outcome.seeds:,}"
    compared = compared_words(results, outcome.compared, places)
    beside = outcome.beside.compared if outcome.beside else None
    other = compared_words(results, beside, places) if beside else ("", "")
    return ClaimLine(where, outcome.claimed, ours, base, *compared, word, seeds, *other)


def answer(results: Results) -> str:
    """Two sentences: how many of the paper's claims hold here, and what would decide or overturn that."""
    if not results.outcomes:
        return "No row can be compared with a baseline."
    words = [outcome.word for outcome in results.outcomes if outcome.word]
    training = any(outcome.cell.cell == OVER_TRAINING for outcome in results.outcomes)
    when = f" {OVER_TRAINING}" * training
    first = f"{_counted(words)} here{when}." if words else "The paper makes no claim about these rows."
    n = max(outcome.compared.n for outcome in results.outcomes)
    if n < CLAIM_SEEDS:
        return f"{first} A verdict takes at least {CLAIM_SEEDS} seeds."
    if not words:
        decided = sum(bool(outcome.measured) for outcome in results.outcomes)
        differ = (
            f"{decided or 'None'} of the {len(results.outcomes)} rows differ{'s' * (decided < 2)} from the baseline"
        )
        return f"{first} {differ}{when}."
    if set(words) != {OPEN}:
        return f"{first} A verdict would be overturned by {results.table.overturned_by}."
    seeds = sorted(outcome.seeds for outcome in results.outcomes if outcome.word and outcome.seeds)
    if not seeds:
        return f"{first} No number of seeds up to {MOST_SEEDS} would decide differences this small."
    needed = f"{seeds[0]:,}" if seeds[0] == seeds[-1] else f"{seeds[0]:,} to {seeds[-1]:,}"
    sizes = "a difference of the measured size" if len(words) == 1 else "differences of the measured sizes"
    smallest = "" if len(seeds) == len(words) else f"; the smallest would take more than {MOST_SEEDS}"
    return f"{first} There are {n} seeds, and about {needed} would decide {sizes}{smallest}."


def _counted(words: Sequence[str]) -> str:
    """`Both claims remain undecided`, `Of 4 claims, 3 hold and 1 does not hold`."""
    total = len(words)
    counts = {word: words.count(word) for word in VERBS if word in words}
    if len(counts) > 1:
        parts = [f"{count} {VERBS[word][count > 1]}" for word, count in counts.items()]
        return f"Of {total} claims, {', '.join(parts[:-1])} and {parts[-1]}"
    if total == 1:
        return f"The claim {VERBS[words[0]][0]}"
    if words[0] == FAILS:
        return "Neither claim holds" if total == 2 else f"None of the {total} claims holds"
    return f"{'Both' if total == 2 else f'All {total}'} claims {VERBS[words[0]][1]}"


def _conclusion(results: Results, outcome: Outcome) -> str:
    if outcome.word in (HOLDS, FAILS):
        return f"{outcome.word}; would be overturned by {results.table.overturned_by}"
    if outcome.compared.word == "identical":
        return "identical to the baseline for every seed"
    if outcome.compared.word == "equal":
        return f"{EQUAL} {within(results.table)}; would be overturned by a decided difference in a longer run"
    if outcome.compared.decided:
        return f"{outcome.measured} here; the paper makes no claim"
    if outcome.compared.n < CLAIM_SEEDS:
        return f"{OPEN}; a verdict takes at least {CLAIM_SEEDS} seeds"
    if outcome.seeds is None:
        return f"{OPEN}; no number of seeds up to {MOST_SEEDS} would decide a difference this small"
    return f"{OPEN}; about {outcome.seeds:,} seeds would decide a difference of this size"
