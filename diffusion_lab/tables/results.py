"""The cells of a table: mean and interval over seeds, difference to the baseline, and what it says of the paper.

    mean        of the seeds, with the 95 % interval of Student's t
    difference  to the baseline in the same cell, over the seeds that both have
    verdict     on the last cell of each column: lower, higher or not decided, corrected by Holm for all rows and
                columns of the table (`diffusion_lab.reports.comparison.verdicts`)
    outcome     of the paper's statement on that row: holds here, does not, or not decided

A paper states that a row is lower than the baseline, or higher, by its numbers in the last cell of the column; where it
has none, by the word of the row (`Row.expects`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diffusion_lab.intervals import Interval, mean_interval, paired_difference, seeds_needed
from diffusion_lab.markup import csv_text
from diffusion_lab.reports.comparison.verdicts import ALPHA, NO_CLAIM, Verdict, judge
from diffusion_lab.tables.table import Table, TableColumn, TableRow, cell_titles
from diffusion_lab.tables.values import Values

HOLDS, FAILS, OPEN = "holds here", "does not hold here", "not decided"


@dataclass(frozen=True)
class TableCell:
    """One number of the table; everything that does not exist is None or empty."""

    row: TableRow
    column: TableColumn
    cell: str
    step: int | None
    mean: Interval | None
    difference: Interval | None
    published: float | None
    verdict: Verdict | None = None

    @property
    def verdict_word(self) -> str:
        """lower, higher, not decided (also with too few seeds) or identical; "" without a verdict."""
        if self.verdict is None or self.difference is None:
            return ""
        if self.verdict.decided:
            return "higher" if self.difference.mean > 0 else "lower"
        return self.verdict.word.replace(NO_CLAIM, OPEN)


@dataclass(frozen=True)
class Outcome:
    """What a table says of a row against the baseline in a column.

    Attributes:
        cell: the last one of the column.
        stated: what the paper says, lower or higher; "" if nothing.
        measured: what is decided here, lower or higher; "" if nothing.
        word: `HOLDS`, `FAILS` or `OPEN`; "" where the paper says nothing.
        seeds: pairs that would decide a difference as large as the measured one; None if decided or unknown.
    """

    cell: TableCell
    claimed: str
    measured: str
    word: str
    seeds: int | None


@dataclass(frozen=True)
class Results:
    """A table with its numbers.

    Attributes:
        table, values: as given.
        cells: of all rows in all columns, in the order of the columns.
        outcomes: one for each row but the baseline and each column that has a difference there.
        tested: number of differences that the verdicts are corrected for.
    """

    table: Table
    values: Values
    better: str
    cells: tuple[TableCell, ...]
    outcomes: tuple[Outcome, ...]
    tested: int

    def cell(self, row: TableRow, column: TableColumn, cell: str) -> TableCell | None:
        """A cell; None if the row has no such column."""
        return next((c for c in self.cells if (c.row, c.column, c.cell) == (row, column, cell)), None)


def summarise(values: Values, better: str) -> Results:
    """The cells of a table, of whose numbers lower or higher ones are `better`; "" if neither are."""
    table = values.table
    cells = [
        _cell(values, row, column, i)
        for column in table.columns
        for i in range(len(column.at))
        for row in table.rows
        if column in table.columns_of(row)
    ]
    last = [cell for cell in cells if cell.cell == cell_titles(cell.column)[-1] and cell.difference is not None]
    verdicts = judge([_pairs(values, cell) for cell in last], rising=better == "higher")
    judged = dict(zip(map(id, last), verdicts, strict=True))
    cells = [TableCell(**{**vars(cell), "verdict": judged.get(id(cell))}) for cell in cells]
    tested = sum(verdict is not None and verdict.p is not None for verdict in verdicts)
    outcomes = [_outcome(values, cell, tested) for cell in cells if cell.verdict is not None]
    return Results(table, values, better, tuple(cells), tuple(outcomes), tested)


def _cell(values: Values, row: TableRow, column: TableColumn, index: int) -> TableCell:
    title = cell_titles(column)[index]
    own = values.of(row.name, column.name, title)
    published = row.published.get(column.name)
    cell = TableCell(
        row,
        column,
        title,
        values.step(column.name, title),
        mean_interval([own[seed] for seed in sorted(own)]) if own else None,
        None,
        published[index] if published else None,
    )
    pairs = [] if row.name == values.table.baseline_of(column) and not row.against else _pairs(values, cell)
    if not pairs:
        return cell
    ours, theirs = zip(*pairs, strict=True)
    return TableCell(**{**vars(cell), "difference": paired_difference(ours, theirs)})


def _pairs(values: Values, cell: TableCell) -> list[tuple[float, float]]:
    """(the row's, the baseline's) value of the seeds that both have."""
    ours = values.of(cell.row.name, cell.column.name, cell.cell)
    number = cell.row.against.get(cell.column.name)
    baseline = values.table.baseline_of(cell.column)
    theirs = values.of(baseline, cell.column.name, cell.cell) if number is None else dict.fromkeys(ours, number)
    return [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]


def _outcome(values: Values, cell: TableCell, tested: int) -> Outcome:
    verdict, claimed = cell.verdict, _claimed(values.table, cell)
    assert verdict is not None and cell.difference is not None
    measured = ("higher" if cell.difference.mean > 0 else "lower") if verdict.decided else ""
    word = "" if not claimed else OPEN if not measured else HOLDS if measured == claimed else FAILS
    needed = None
    if not measured and cell.difference.std and cell.difference.mean:
        needed = seeds_needed(cell.difference.std, abs(cell.difference.mean), ALPHA / max(1, tested))
    return Outcome(cell, claimed, measured, word, needed)


def _claimed(table: Table, cell: TableCell) -> str:
    """Whether the paper has this row lower or higher than the baseline; "" if it says neither."""
    base = published_baseline(table, cell)
    if cell.published is None or base is None:
        expects = cell.row.expects
        return expects if isinstance(expects, str) else expects.get(cell.column.name, "")
    return "" if cell.published == base else "higher" if cell.published > base else "lower"


def published_baseline(table: Table, cell: TableCell) -> float | None:
    """The paper's number of the baseline in the last cell of a column, or what stands for it."""
    if cell.column.name in cell.row.against:
        return cell.row.against[cell.column.name]
    baseline = table.baseline_of(cell.column)
    theirs = table.row(baseline).published.get(cell.column.name) if baseline else None
    return theirs[-1] if theirs else None


def table_csv(results: Results, data: Mapping[tuple[str, str], str] | None = None) -> str:
    """Everything that is printed, with all digits: a function of the values.

    `data` has of (row, column) the data set of the runs, which a scale may have put in the place of the column's; None:
    no such field.
    """
    titles = ("row", "column", "cell", "step", "quantity", "n", "mean", "low", "high", "published")
    titles += ("difference", "difference_low", "difference_high", "p_corrected", "verdict", "outcome")
    titles += () if data is None else ("data",)
    outcomes = {id(outcome.cell): outcome.word for outcome in results.outcomes}
    lines = []
    for cell in results.cells:
        mean, difference, verdict = cell.mean, cell.difference, cell.verdict
        first = (cell.row.name, cell.column.name, cell.cell, cell.step, results.values.quantity if mean else "")
        numbers = (mean.n, mean.mean, mean.low, mean.high) if mean else (0, None, None, None)
        paired = (difference.mean, difference.low, difference.high) if difference else (None, None, None)
        judged = (verdict.p if verdict else None, cell.verdict_word)
        line = (*first, *numbers, cell.published, *paired, *judged, outcomes.get(id(cell), ""))
        line += () if data is None else (data.get((cell.row.name, cell.column.name), ""),)
        lines.append(["" if entry is None else repr(entry) if isinstance(entry, float) else entry for entry in line])
    return csv_text(titles, lines)
