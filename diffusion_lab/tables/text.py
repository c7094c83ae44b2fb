"""A table as text: what was measured and what the paper has published.

Measured and published numbers are separate tables in the paper's layout, one for each column of settings with the steps
side by side, because a distance under features of digits and a published FID are different quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diffusion_lab.intervals import Interval
from diffusion_lab.reports.comparison.cells import Cell, Comparison, decimals, number
from diffusion_lab.tables.judged import OVER_TRAINING
from diffusion_lab.tables.results import EQUAL, OPEN, Results, TableCell, beside_title, deciding_cell
from diffusion_lab.tables.table import Table, TableColumn, TableRow, cell_titles, reference_title
from diffusion_lab.tables.values import COMMON
from diffusion_lab.verdicts import CLAIM_SEEDS, Verdict

NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
LATENTS = "latents common to all seeds: the intervals leave out their effect"


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
    if any(cell.compared for cell in shown):
        titles += _compared_titles(results, column)
        for line, row in zip(lines, rows, strict=True):
            line += _compared(results, row, column, places)
    notes = [f"{row.title}: {missing[row.name, column.name]}." for row in rows if (row.name, column.name) in missing]
    notes += [f"{row.title}: {said}." for row in rows if (said := diverged_words(results, row, column))]
    return Comparison(titles, lines, legend(results), notes, left=1)


def diverged_words(results: Results, row: TableRow, column: TableColumn) -> str:
    """`2 of 3 seeds diverged (0 and 2) and are left out`; empty if none did."""
    lost = results.diverged.get((row.name, column.name), ())
    if not lost:
        return ""
    own = {v.seed for v in results.values.values if (v.row, v.column) == (row.name, column.name)}
    many = "are" if len(lost) > 1 else "is"
    return f"{len(lost)} of {len(own)} seeds diverged ({' and '.join(map(str, lost))}) and {many} left out"


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


def _compared_titles(results: Results, column: TableColumn) -> list[str]:
    """Of the cell that decides, and of the one beside it."""
    decides = deciding_cell(results.table, column)
    titles = [f"to {reference_title(results.table, column)}, {decides}", "95 % interval", "verdict"]
    if not (other := beside_title(column, decides)):
        return titles
    return [*titles, f"{'' if other == OVER_TRAINING else 'at '}{other}, no verdict", "95 % interval"]


def _compared(results: Results, row: TableRow, column: TableColumn, places: int) -> list[Cell]:
    """What the row is to the baseline, its interval and verdict; bold where it may be claimed; then the cell beside."""
    decides = deciding_cell(results.table, column)
    cells = [results.cell(row, column, title) for title in (decides, beside_title(column, decides)) if title]
    first = "baseline" if row.name == results.table.baseline_of(column) else NONE
    found = []
    for cell in cells:
        if cell is None or cell.compared is None:
            found += [Cell(first if cell is cells[0] else ""), *[Cell("")] * (2 if cell is cells[0] else 1)]
            continue
        words = [*compared_words(results, cell.compared, places), *([verdict_words(results, cell)] * cell.decides)]
        found += [Cell(word, cell.decides and cell.compared.decided) for word in words]
    return found


def verdict_words(results: Results, cell: TableCell) -> str:
    """`lower`, `equal within 10 %`."""
    return f"{EQUAL} {within(results.table)}" if cell.verdict_word == EQUAL else cell.verdict_word


def within(table: Table) -> str:
    """`within 10 %`"""
    return f"within {100 * (table.margin - 1):.3g} %"


def compared_words(results: Results, verdict: Verdict, places: int) -> tuple[str, str]:
    """`0.81` and `[0.76, 0.86]`; of differences `−0.46` and `[−1.04, +0.12]`; no interval for
    one seed. The end of an interval that is exactly no difference is not in it, and has a round bracket."""
    if results.scale == "ratio":
        return ratio_words(verdict)
    return _words(verdict, lambda value: _signed(value, places), 0.0)


def ratio_words(verdict: Verdict) -> tuple[str, str]:
    """`0.81` and `[0.76, 0.86]`."""
    return _words(verdict, ratio_text, 1.0)


def _words(verdict: Verdict, said: Callable[[float], str], none: float) -> tuple[str, str]:
    if verdict.low is None or verdict.high is None:
        return said(verdict.size), ""
    first = "(" if verdict.decided and verdict.low == none else "["
    last = ")" if verdict.decided and verdict.high == none else "]"
    return said(verdict.size), f"{first}{said(verdict.low)}, {said(verdict.high)}{last}"


def ratio_text(value: float) -> str:
    """`0.81`, and `0.996` for what two decimals would show as no difference."""
    if value >= 100 or value < 0.01:
        return number(value, 3)
    text = f"{value:.2f}"
    return text if text != "1.00" or abs(value - 1) < 1e-9 else f"{value:.3f}"


def _signed(value: float, places: int) -> str:
    return number(value, signed=True) if places < 0 else f"{value:+.{places}f}".replace("-", MINUS)


def legend(results: Results) -> str:
    """What the numbers are."""
    counts = sorted({cell.mean.n for cell in results.cells if cell.mean is not None})
    seeds = " to ".join(str(count) for count in dict.fromkeys((counts or [0])[:1] + counts[-1:]))
    text = f"Measured: mean over n = {seeds} seeds"
    if counts and counts[-1] > 1:
        text += " ± half the width of Student's 95 % interval"
    if published(results.table) and results.values.quantity not in ("", results.table.unit):
        text += f"; {results.values.quantity} and the paper's {results.table.unit} have no common scale"
    if results.values.latents == COMMON:
        text += f"; {LATENTS}"
    if not any(reference_title(results.table, column) for column in results.table.columns):
        return text
    if not results.tested:
        return f'{text}; with fewer than {CLAIM_SEEDS} seeds every verdict is "{OPEN}" and nothing is set in bold'
    return f"{text}; {_meaning(results)}"


def _meaning(results: Results) -> str:
    """How rows are compared and decided."""
    if results.table.baseline or any(column.baseline for column in results.table.columns):
        what = "ratios of geometric means" if results.scale == "ratio" else "differences of means"
        none = "1" if results.scale == "ratio" else "0"
        text = (
            f"comparisons are {what} over the common seeds, paired by seed; their 95 % intervals hold for all rows "
            f"of a column at once, and exclude {none} where a row is decided (bold) and only there"
        )
        text += f"; equal: the 90 % interval of the same kind lies {within(results.table)}"
    else:
        text = (
            "differences have Student's interval, at 95 % for all rows of a column at once (Bonferroni), and exclude 0 "
            "where a row is decided (bold) and only there"
        )
    if any(deciding_cell(results.table, column) == OVER_TRAINING for column in results.table.columns):
        text += f"; {OVER_TRAINING}: the {'geometric ' * (results.scale == 'ratio')}mean over the cells of a row"
    return text
