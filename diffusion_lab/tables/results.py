"""The cells of a table: mean and interval over seeds, ratio to the baseline, and what it says of the paper.

    mean        of the seeds, with the 95 % interval of Student's t
    compared    the ratio or the difference to the baseline in the same cell, over the seeds that both have, with an
                interval that is simultaneous for the rows of the column (`diffusion_lab.tables.judged`)
    verdict     on the cell of each column that decides (`Table.estimand`): lower, higher, equal, not decided, identical
    outcome     of the paper's statement on that row: holds here, does not, equal, or not decided

A paper states that a row is lower than the baseline, or higher, by its numbers in the cell that decides; where it has
none, by the word of the row (`Row.expects`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.markup import csv_text
from diffusion_lab.tables.judged import OVER_TRAINING, Numbers, column_numbers, diverged_seeds, verdicts_of
from diffusion_lab.tables.table import Table, TableColumn, TableRow, cell_titles
from diffusion_lab.tables.values import Values
from diffusion_lab.verdicts import Scale, Verdict, seeds_needed

HOLDS, FAILS, EQUAL, OPEN = "holds here", "does not hold here", "equal", "not decided"
WORDS = {"better": "lower", "worse": "higher", "no claim": OPEN}


@dataclass(frozen=True)
class TableCell:
    """One number of the table; everything that does not exist is None or empty.

    Attributes:
        row, column, cell: which; `OVER_TRAINING` is the mean over the cells of a column.
        step: optimizer step here.
        mean: over the seeds, without those that diverged.
        compared: with the baseline; its word "better" stands for lower.
        published: the paper's number.
        decides: whether it is the cell whose verdict counts.
    """

    row: TableRow
    column: TableColumn
    cell: str
    step: int | None
    mean: Interval | None
    compared: Verdict | None
    published: float | None
    decides: bool

    @property
    def verdict_word(self) -> str:
        """lower, higher, equal, not decided (also with too few seeds) or identical; "" without a verdict."""
        return "" if self.compared is None or not self.decides else WORDS.get(self.compared.word, self.compared.word)


@dataclass(frozen=True)
class Outcome:
    """What a table says of a row against the baseline in a column.

    Attributes:
        cell: the one that decides.
        beside: the last cell of the column if the mean over training decides, else that mean; None: there is one cell.
        claimed: what the paper says, lower or higher; "" if nothing.
        measured: what is decided here, lower or higher; "" if nothing.
        word: `HOLDS`, `FAILS`, `EQUAL` or `OPEN`; "" where the paper says nothing.
        seeds: pairs that would decide a difference as large as the measured one; None if decided or unknown.
    """

    cell: TableCell
    beside: TableCell | None
    claimed: str
    measured: str
    word: str
    seeds: int | None

    @property
    def compared(self) -> Verdict:
        assert self.cell.compared is not None
        return self.cell.compared


@dataclass(frozen=True)
class Results:
    """A table with its numbers.

    Attributes:
        table, values: as given.
        better: lower or higher; "": neither.
        scale: whether rows are compared by ratios or by differences.
        cells: of all rows in all columns, in the order of the columns.
        outcomes: one for each row but the baseline and each column that has a comparison there.
        diverged: (row, column) -> the seeds that diverged, which no number of the row has.
    """

    table: Table
    values: Values
    better: str
    scale: Scale
    cells: tuple[TableCell, ...]
    outcomes: tuple[Outcome, ...]
    diverged: Mapping[tuple[str, str], tuple[int, ...]]

    def cell(self, row: TableRow, column: TableColumn, cell: str) -> TableCell | None:
        """A cell; None if the row has no such column."""
        return next((c for c in self.cells if (c.row, c.column, c.cell) == (row, column, cell)), None)

    @property
    def tested(self) -> bool:
        """Whether a row has enough seeds for a verdict."""
        return any(outcome.compared.word != "no claim" for outcome in self.outcomes)


def deciding_cell(table: Table, column: TableColumn) -> str:
    """The cell of a column whose verdict counts: `OVER_TRAINING` or the last one."""
    titles = cell_titles(column)
    return OVER_TRAINING if table.estimand == "training" and len(titles) > 1 else titles[-1]


def beside_title(column: TableColumn, cell: str) -> str:
    """The cell that stands beside the one that decides: the last one, or the mean over training."""
    last = cell_titles(column)[-1]
    return "" if len(cell_titles(column)) == 1 else last if cell == OVER_TRAINING else OVER_TRAINING


def summarise(values: Values, better: str, scale: Scale = "ratio") -> Results:
    """The cells of a table, of whose numbers lower or higher ones are `better`; "" if neither are. Rows are compared by
    differences where one of the numbers has no ratio."""
    table, falling = values.table, better == "lower" and scale == "ratio"
    numbers = [one.value for one in values.values] + [one for row in table.rows for one in row.against.values()]
    scale = scale if min(numbers, default=1) > 0 else "difference"
    cells: list[TableCell] = []
    diverged = {}
    for column in table.columns:
        found = diverged_seeds(values, column) if falling else {}
        for title, numbers in column_numbers(values, column, scale, found).items():
            cells += _cells(values, column, title, numbers, scale)
        diverged |= {(row, column.name): seeds for row, seeds in found.items()}
    results = Results(table, values, better, scale, tuple(cells), (), diverged)
    outcomes = [_outcome(results, cell) for cell in cells if cell.decides and cell.compared is not None]
    return replace(results, outcomes=tuple(outcomes))


def _cells(values: Values, column: TableColumn, title: str, numbers: Numbers, scale: Scale) -> list[TableCell]:
    table = values.table
    compared = verdicts_of(table, column, numbers, scale)
    step, decides = values.step(column.name, title), title == deciding_cell(table, column)
    return [
        TableCell(
            row,
            column,
            title,
            step,
            mean_interval([own[seed] for seed in sorted(own)]) if (own := numbers[row.name]) else None,
            compared.get(row.name),
            _published(row, column, title, scale),
            decides,
        )
        for row in table.rows
        if column in table.columns_of(row)
    ]


def _published(row: TableRow, column: TableColumn, title: str, scale: Scale) -> float | None:
    numbers = row.published.get(column.name)
    if numbers is None or title != OVER_TRAINING:
        return numbers[cell_titles(column).index(title)] if numbers else None
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers) or (scale == "ratio" and min(known) <= 0):
        return None
    if scale == "ratio":
        return math.exp(math.fsum(map(math.log, known)) / len(known))
    return math.fsum(known) / len(known)


def _outcome(results: Results, cell: TableCell) -> Outcome:
    verdict, claimed = cell.compared, _claimed(results, cell)
    assert verdict is not None
    measured = WORDS[verdict.word] if verdict.decided else ""
    word = HOLDS if measured == claimed else FAILS if measured else EQUAL if verdict.word == "equal" else OPEN
    size = abs(math.log(verdict.size)) if results.scale == "ratio" else abs(verdict.size)
    needed = None
    if verdict.word == "not decided" and verdict.deviation and size:
        needed = seeds_needed(verdict.deviation, size, verdict.rows)
    other = beside_title(cell.column, cell.cell)
    beside = results.cell(cell.row, cell.column, other) if other else None
    return Outcome(cell, beside, claimed, measured, word if claimed else "", needed)


def _claimed(results: Results, cell: TableCell) -> str:
    """Whether the paper has this row lower or higher than the baseline; "" if it says neither."""
    base = published_baseline(results, cell)
    if cell.published is None or base is None:
        expects = cell.row.expects
        return expects if isinstance(expects, str) else expects.get(cell.column.name, "")
    return "" if cell.published == base else "higher" if cell.published > base else "lower"


def published_baseline(results: Results, cell: TableCell) -> float | None:
    """The paper's number of the baseline in a cell, or what stands for it."""
    if cell.column.name in cell.row.against:
        return cell.row.against[cell.column.name]
    baseline = results.table.baseline_of(cell.column)
    return _published(results.table.row(baseline), cell.column, cell.cell, results.scale) if baseline else None


def table_csv(results: Results, data: Mapping[tuple[str, str], str] | None = None) -> str:
    """Everything that is printed, with all digits: a function of the values.

    `data` has of (row, column) the data set of the runs, which a scale may have put in the place of the column's; None:
    no such field. `decides` is 1 in the cell whose verdict counts, for the estimand and the margin of the table.
    """
    scale = results.scale
    titles = ("row", "column", "cell", "step", "quantity", "n", "mean", "low", "high", "published", "diverged")
    titles += (scale, f"{scale}_low", f"{scale}_high", "pairs", "decides", "estimand", "margin", "verdict", "outcome")
    titles += () if data is None else ("data",)
    outcomes = {id(outcome.cell): outcome.word for outcome in results.outcomes}
    lines = []
    for cell in results.cells:
        mean, verdict, place = cell.mean, cell.compared, (cell.row.name, cell.column.name)
        line = (*place, cell.cell, cell.step, results.values.quantity if mean else "")
        line += (mean.n, mean.mean, mean.low, mean.high) if mean else (0, None, None, None)
        line += (cell.published, " ".join(map(str, results.diverged.get(place, ()))))
        line += (verdict.size, verdict.low, verdict.high, verdict.n) if verdict else (None, None, None, None)
        line += (int(cell.decides), results.table.estimand, results.table.margin)
        line += (cell.verdict_word, outcomes.get(id(cell), ""))
        line += () if data is None else (data.get(place, ""),)
        lines.append(["" if entry is None else repr(entry) if isinstance(entry, float) else entry for entry in line])
    return csv_text(titles, lines)
