"""A table as text: in the paper's layout, and what it says of the paper's statements.

There is a text table for each column of settings, with the steps side by side, and a sentence for each row and column.
Every cell is `measured / published`: the mean over seeds with half the width of its 95 % interval, and the paper's
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from diffusion_lab.intervals import Interval
from diffusion_lab.reports.comparison.cells import Cell, Comparison, decimals, number, with_interval
from diffusion_lab.reports.comparison.verdicts import ALPHA, CLAIM_SEEDS
from diffusion_lab.tables.results import FAILS, HOLDS, OPEN, Outcome, Results, TableCell, published_baseline
from diffusion_lab.tables.table import Column, Row, Table, cell_titles, reference_title

NONE = "\N{EN DASH}"


def comparisons(results: Results, missing: Mapping[tuple[str, str], str]) -> dict[str, Comparison]:
    """Title of a column -> its table; `missing` says of (row, column) why it has no numbers."""
    return {column.title: _comparison(results, column, missing) for column in results.table.columns}


def _comparison(results: Results, column: Column, missing: Mapping[tuple[str, str], str]) -> Comparison:
    table = results.table
    rows = [row for row in table.rows if column in table.columns_of(row)]
    titles = ["", *(_title(results, column, cell) for cell in cell_titles(column))]
    shown = [cell for cell in results.cells if cell.column == column and cell.mean is not None]
    places = places_of(results, column)
    lines = [[Cell(row.title), *_cells(results, row, column, places)] for row in rows]
    compared = any(cell.difference for cell in shown)
    if compared:
        titles += [f"to {reference_title(table, column)}, {cell_titles(column)[-1]}", "verdict"]
        for line, row in zip(lines, rows, strict=True):
            line += _compared(results, row, column, places)
    notes = [f"{row.title}: {missing[row.name, column.name]}." for row in rows if (row.name, column.name) in missing]
    return Comparison(titles, lines, legend(results), notes, left=1)


def places_of(results: Results, column: Column) -> int:
    """Decimals of a column's numbers, the same for all of its rows."""
    means = [cell.mean for cell in results.cells if cell.column == column and cell.mean is not None]
    return decimals([mean.mean for mean in means], digits=3)


def _title(results: Results, column: Column, cell: str) -> str:
    """`200k (here 400)`, `300 epochs (here after 600 steps)`; the title alone where the steps are the paper's."""
    step = results.values.step(column.name, cell)
    paper = dict(zip(cell_titles(column), column.at, strict=True))[cell]
    if step is None or step == paper:
        return cell
    return f"{cell} (here after {step:,} steps)" if column.labels else f"{cell} (here {step:,})"


def _cells(results: Results, row: Row, column: Column, places: int) -> list[Cell]:
    cells = [results.cell(row, column, cell) for cell in cell_titles(column)]
    return [Cell(measured_and_published(results.table, cell, places)) for cell in cells if cell is not None]


def measured_and_published(table: Table, cell: TableCell, places: int) -> str:
    """`12.31 ± 0.52 / 8.16`; what does not exist is a dash, and a paper that has no number has no slash."""
    ours = measured_number(cell.mean, places) if cell.mean is not None else NONE
    return ours if cell.published is None else f"{ours} / {published_number(table, cell.published)}"


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


def _compared(results: Results, row: Row, column: Column, places: int) -> list[Cell]:
    """The difference to the baseline in the last cell, and its verdict; bold where it may be claimed."""
    cell = results.cell(row, column, cell_titles(column)[-1])
    if cell is None or cell.difference is None or cell.verdict is None:
        return [Cell("baseline" if row.name == results.table.baseline_of(column) else NONE), Cell("")]
    bold = cell.verdict.decided
    word = cell.verdict_word
    if cell.verdict.p is not None:
        word += ", p < 0.001" if cell.verdict.p < 0.001 else f", p = {cell.verdict.p:.2g}"
    return [Cell(with_interval(cell.difference, places, signed=True), bold), Cell(word, bold)]


def legend(results: Results) -> str:
    """What the numbers are."""
    counts = sorted({cell.mean.n for cell in results.cells if cell.mean is not None})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts or [0])[:1] + counts[-1:]))
    beside = " / published" if any(cell.published is not None for cell in results.cells) else ""
    text = f"measured{beside}; {results.values.quantity or 'nothing measured'}, mean over n = {seeds} seeds"
    if counts and counts[-1] > 1:
        text += " ± half the width of Student's 95 % interval"
    if not any(reference_title(results.table, column) for column in results.table.columns):
        return text
    if not results.tested:
        return f'{text}; with fewer than {CLAIM_SEEDS} seeds every verdict is "{OPEN}" and nothing is set in bold'
    return (
        f"{text}; differences are paired by seed; bold: p of the paired t-test at most {100 * ALPHA:g} % after Holm's "
        f"correction for the {results.tested} differences of this table"
    )


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
