"""A table as text: the answer, what was measured and what the paper has published, and a sentence for each claim.

Measured and published numbers are separate tables in the paper's layout, one for each column of settings with the steps
side by side, because a distance under features of digits and a published FID are different quantities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from diffusion_lab.intervals import Interval
from diffusion_lab.reports.comparison.cells import Cell, Comparison, decimals, number, with_interval
from diffusion_lab.reports.comparison.verdicts import ALPHA, CLAIM_SEEDS
from diffusion_lab.tables.results import FAILS, HOLDS, OPEN, Outcome, Results, published_baseline
from diffusion_lab.tables.table import Table, TableColumn, TableRow, cell_titles, reference_title

NONE = "\N{EN DASH}"
VERBS = {  # of one claim, and of several
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    OPEN: ("remains undecided", "remain undecided"),
}


def tables(results: Results, missing: Mapping[tuple[str, str], str]) -> dict[str, Comparison]:
    """Heading -> table: measured and, if the paper has numbers, published, column by column."""
    found, paper = comparisons(results, missing), published(results.table)
    several = len(found) > 1
    made = {}
    for title, one in found.items():
        of = f", {title}" if several else ""
        made[f"Measured{of}: {results.values.quantity or 'nothing'}"] = one
        if title in paper:
            made[f"Published{of}: {results.table.unit}"] = paper[title]
    return made


def comparisons(results: Results, missing: Mapping[tuple[str, str], str]) -> dict[str, Comparison]:
    """Title of a column -> what was measured; `missing` says of (row, column) why it has no numbers."""
    return {column.title: _comparison(results, column, missing) for column in results.table.columns}


def published(table: Table) -> dict[str, Comparison]:
    """Title of a column -> what the paper has published; no entry for a column without numbers."""
    made = {}
    for column in table.columns:
        lines = [
            [Cell(row.title), *(Cell(NONE if n is None else published_number(table, n)) for n in own)]
            for row in table.rows
            if (own := row.published.get(column.name))
        ]
        if lines:
            made[column.title] = Comparison(["", *cell_titles(column)], lines, "", [], left=1)
    return made


def _comparison(results: Results, column: TableColumn, missing: Mapping[tuple[str, str], str]) -> Comparison:
    table = results.table
    rows = [row for row in table.rows if column in table.columns_of(row)]
    titles = ["", *(_title(results, column, cell) for cell in cell_titles(column))]
    shown = [cell for cell in results.cells if cell.column == column and cell.mean is not None]
    places = places_of(results, column)
    lines = [[Cell(row.title), *_cells(results, row, column, places)] for row in rows]
    compared = any(cell.difference for cell in shown)
    if compared:
        tested = any(cell.verdict and cell.verdict.p is not None for cell in shown)
        titles += [f"to {reference_title(table, column)}, {cell_titles(column)[-1]}", "95 % interval"]
        titles += [*(["p"] if tested else []), "verdict"]
        for line, row in zip(lines, rows, strict=True):
            line += _compared(results, row, column, places, tested)
    notes = [f"{row.title}: {missing[row.name, column.name]}." for row in rows if (row.name, column.name) in missing]
    return Comparison(titles, lines, legend(results), notes, left=1)


def places_of(results: Results, column: TableColumn) -> int:
    """Decimals of a column's numbers, the same for all of its rows."""
    means = [cell.mean for cell in results.cells if cell.column == column and cell.mean is not None]
    return decimals([mean.mean for mean in means], digits=3)


def _title(results: Results, column: TableColumn, cell: str) -> str:
    """`200k (here 400)`, `300 epochs (here after 600 steps)`; the title alone where the steps are the paper's."""
    step = results.values.step(column.name, cell)
    paper = dict(zip(cell_titles(column), column.at, strict=True))[cell]
    if step is None or step == paper:
        return cell
    return f"{cell} (here after {step:,} steps)" if column.labels else f"{cell} (here {step:,})"


def _cells(results: Results, row: TableRow, column: TableColumn, places: int) -> list[Cell]:
    cells = [results.cell(row, column, cell) for cell in cell_titles(column)]
    return [Cell(NONE if one.mean is None else measured_number(one.mean, places)) for one in cells if one is not None]


def published_number(table: Table, value: float) -> str:
    """A published value with as many decimals as the table's most exact one: 2.60 beside 2.72."""
    numbers = [n for row in table.rows for own in row.published.values() for n in own if n is not None]
    places = max((len(f"{number:g}".partition(".")[2]) for number in numbers), default=2)
    return f"{value:.{places}f}"


def measured_number(mean: Interval, places: int) -> str:
    """`12.31 ± 0.52`, half the width of the interval; `12.31 (n=1)`."""
    text = number(mean.mean, 3) if places < 0 else f"{mean.mean:.{places}f}".replace("-", "\N{MINUS SIGN}")
    if mean.half_width is None:
        return f"{text} (n=1)"
    half = number(mean.half_width, 2) if places < 0 else f"{mean.half_width:.{places}f}"
    return f"{text} ± {half}"


def _compared(results: Results, row: TableRow, column: TableColumn, places: int, tested: bool) -> list[Cell]:
    """The difference to the baseline in the last cell, its interval, p and verdict; bold where it may be claimed."""
    cell = results.cell(row, column, cell_titles(column)[-1])
    if cell is None or cell.difference is None or cell.verdict is None:
        first = "baseline" if row.name == results.table.baseline_of(column) else NONE
        return [Cell(first), *[Cell("")] * (3 if tested else 2)]
    p = cell.verdict.p
    words = [*difference_words(cell.difference, places)]
    words += ["" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"] if tested else []
    return [Cell(word, cell.verdict.decided) for word in (*words, cell.verdict_word)]


def difference_words(difference: Interval, places: int) -> tuple[str, str]:
    """`−0.46` and `[−1.04, +0.12]`, which is empty for one seed."""
    mean, _, interval = with_interval(difference, places, signed=True).partition(" ")
    return mean, interval if difference.low is not None else ""


def legend(results: Results) -> str:
    """What the numbers are."""
    counts = sorted({cell.mean.n for cell in results.cells if cell.mean is not None})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts or [0])[:1] + counts[-1:]))
    text = f"Measured: mean over n = {seeds} seeds"
    if counts and counts[-1] > 1:
        text += " ± half the width of Student's 95 % interval"
    if published(results.table) and results.values.quantity not in ("", results.table.unit):
        text += f"; {results.values.quantity} and the paper's {results.table.unit} have no common scale"
    if not any(reference_title(results.table, column) for column in results.table.columns):
        return text
    if not results.tested:
        return f'{text}; with fewer than {CLAIM_SEEDS} seeds every verdict is "{OPEN}" and nothing is set in bold'
    return (
        f"{text}; differences are paired by seed; bold: p of the paired t-test at most {100 * ALPHA:g} % after Holm's "
        f"correction for the {results.tested} differences of this table"
    )


class ClaimLine(NamedTuple):
    """What there is to say of a row in a column; the texts of a table's cells, which hold one number at most.

    Attributes:
        where: the row, and the column if there are several.
        claim: whether the paper has the row lower or higher than the baseline; empty: it makes no claim.
        published, baseline: the paper's numbers of the row and of the baseline; empty without them.
        difference, interval: the measured ones.
        verdict: whether the claim holds here.
        seeds: how many would decide a difference of the measured size; empty if it is decided or unknown.
    """

    where: str
    claim: str
    published: str
    baseline: str
    difference: str
    interval: str
    verdict: str
    seeds: str


def sentences(results: Results) -> list[tuple[str, str]]:
    """(the outcome, the sentence) of each row but the baseline in each column."""
    return [(outcome.word, sentence(results, outcome)) for outcome in results.outcomes]


def sentence(results: Results, outcome: Outcome) -> str:
    """`Ours, linear: the paper claims 2.94 against 3.19 of DDPM (FID); measured here −0.52 [−0.90, −0.14] (fd1k_digits,
    n = 3): holds here; ...`"""
    said, table = said_of(results, outcome), results.table
    base, difference = reference_title(table, outcome.cell.column), outcome.cell.difference
    assert difference is not None
    if said.published and said.baseline:
        paper = f"claims {said.published} against {said.baseline} of {base} ({table.unit})"
    elif said.claim:
        paper = f"claims a {said.claim} {table.unit} than {base}, without a number"
    else:
        paper = "makes no claim"
    here = " ".join(filter(None, (said.difference, said.interval)))
    conclusion = _conclusion(results, outcome)
    return (
        f"{said.where}: the paper {paper}; here {here} ({results.values.quantity}, n = {difference.n}): {conclusion}."
    )


def said_of(results: Results, outcome: Outcome) -> ClaimLine:
    """The parts of the sentence about a row in a column."""
    cell, table = outcome.cell, results.table
    assert cell.difference is not None
    where = f"{cell.row.title}, {cell.column.title}" if len(table.columns) > 1 else cell.row.title
    theirs = published_baseline(table, cell)
    ours, base = ("" if n is None else published_number(table, n) for n in (cell.published, theirs))
    difference, interval = difference_words(cell.difference, places_of(results, cell.column))
    word = outcome.word or (f"{outcome.measured} here" if outcome.measured else cell.verdict_word)
    many = not outcome.measured and cell.verdict_word == OPEN and cell.difference.n >= CLAIM_SEEDS
    seeds = "" if not many else "over 10,000" if outcome.seeds is None else f"{outcome.seeds:,}"
    return ClaimLine(where, outcome.claimed, ours, base, difference, interval, word, seeds)


def answer(results: Results) -> str:
    """Two sentences: how many of the paper's claims hold here, and what would decide or overturn that."""
    if not results.outcomes:
        return "No row can be compared with a baseline."
    words = [outcome.word for outcome in results.outcomes if outcome.word]
    first = f"{_counted(words)} here." if words else "The paper makes no claim about these rows."
    counts = [outcome.cell.difference.n for outcome in results.outcomes if outcome.cell.difference]
    if max(counts) < CLAIM_SEEDS:
        return f"{first} A verdict takes at least {CLAIM_SEEDS} seeds."
    if not words:
        decided = sum(bool(outcome.measured) for outcome in results.outcomes)
        differ = (
            f"{decided or 'None'} of the {len(results.outcomes)} rows differ{'s' * (decided < 2)} from the baseline"
        )
        return f"{first} {differ} after the correction for all of them."
    if set(words) != {OPEN}:
        return f"{first} A verdict would be overturned by {results.table.overturned_by}."
    seeds = sorted(outcome.seeds for outcome in results.outcomes if outcome.word and outcome.seeds)
    if not seeds:
        return f"{first} No number of seeds below 10,000 would decide differences this small."
    needed = f"{seeds[0]:,}" if seeds[0] == seeds[-1] else f"{seeds[0]:,} to {seeds[-1]:,}"
    sizes = "a difference of the measured size" if len(words) == 1 else "differences of the measured sizes"
    smallest = "" if len(seeds) == len(words) else "; the smallest would take more than 10,000"
    return f"{first} There are {max(counts)} seeds, and about {needed} would decide {sizes}{smallest}."


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
    verdict = outcome.cell.verdict
    assert verdict is not None
    if outcome.word in (HOLDS, FAILS):
        return f"{outcome.word}; would be overturned by {results.table.overturned_by}"
    if verdict.word == "identical":
        return "identical to the baseline for every seed"
    if outcome.word == OPEN or not verdict.decided:
        return f"{OPEN}; {_needed(outcome)}"
    return f"{outcome.measured} here; the paper makes no claim"


def _needed(outcome: Outcome) -> str:
    difference = outcome.cell.difference
    assert difference is not None
    if difference.n < CLAIM_SEEDS:
        return f"a verdict takes at least {CLAIM_SEEDS} seeds"
    if outcome.seeds is None:
        return "no number of seeds below 10,000 would decide a difference this small"
    return f"about {outcome.seeds:,} seeds would decide a difference of this size"
