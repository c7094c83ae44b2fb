"""The numbers of a column of a table that are compared, and their verdicts by `diffusion_lab.verdicts`.

The family is the rows of a column: they are decided together, so that of 20 columns without any difference one has a
false verdict. Columns have runs of their own as baseline and are families of their own, as is each cell of a column;
the verdict is that of the cell that decides (`Table.estimand`), the others stand beside it.

A seed of a row has diverged if its last value is missing, or by `verdicts.lost_seeds`, where lower is better. It is
counted, and left out of every mean, ratio and verdict of its row.

Rows that are compared with a number of their own, and not with a row, share no baseline: `judge_alone`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from diffusion_lab.reports.comparison.evidence import diverged_where_positive
from diffusion_lab.tables.table import Table, TableColumn, cell_titles
from diffusion_lab.tables.values import Values
from diffusion_lab.verdicts import Scale, Verdict, judge, judge_alone, lost_seeds, over_training

OVER_TRAINING = "over training"  # the cell with the mean over a column's cells

Numbers = Mapping[str, Mapping[int, float]]  # row -> seed -> value


def column_numbers(
    values: Values, column: TableColumn, scale: Scale, lost: Mapping[str, Sequence[int]]
) -> dict[str, Numbers]:
    """Cell -> its numbers, without the `lost` seeds of its rows; with several cells also their mean over training, for
    ratios the geometric one."""
    found = _numbers(values, column)
    kept: dict[str, Numbers] = {
        title: {row: {s: v for s, v in own.items() if s not in lost.get(row, ())} for row, own in rows.items()}
        for title, rows in found.items()
    }
    return (
        kept
        if len(kept) == 1
        else {**kept, OVER_TRAINING: _over_training(kept, scale, values.table.baseline_of(column))}
    )


def diverged_seeds(values: Values, column: TableColumn) -> dict[str, tuple[int, ...]]:
    """Row -> its seeds that diverged, of the rows that have some."""
    cells = list(_numbers(values, column).values())
    names, baseline = list(cells[0]), values.table.baseline_of(column)
    seeds = [sorted({seed for cell in cells for seed in cell[row]}) for row in names]
    curves = [
        {seed: dict(enumerate(cell[row].get(seed, math.inf) for cell in cells)) for seed in own}
        for row, own in zip(names, seeds, strict=True)
    ]
    base = names.index(baseline) if baseline in names else None
    lost = lost_seeds(curves, base, [i for i in range(len(names)) if i != base], diverged_where_positive)
    return {row: tuple(seeds) for row, seeds in zip(names, lost, strict=True) if seeds}


def verdicts_of(table: Table, column: TableColumn, numbers: Numbers, scale: Scale) -> dict[str, Verdict]:
    """Row -> its verdict, of a cell; "better" stands for lower; no entry for the baseline and rows without pairs."""
    baseline = table.baseline_of(column)
    against = {row.name: row.against[column.name] for row in table.rows if column.name in row.against}
    rows = [row for row in numbers if row != baseline and row not in against]
    found: dict[str, Verdict | None] = {}
    if numbers.get(baseline):
        judged = judge([numbers[baseline], *(numbers[row] for row in rows)], scale, rising=False, margin=table.margin)
        found = dict(zip(rows, judged[1:], strict=True))
    sizes = {
        row: [value / number if scale == "ratio" else value - number for value in numbers.get(row, {}).values()]
        for row, number in against.items()
    }
    found |= dict(zip(sizes, judge_alone(list(sizes.values()), scale, table.margin), strict=True))
    return {row: verdict for row, verdict in found.items() if verdict is not None}


def _numbers(values: Values, column: TableColumn) -> dict[str, Numbers]:
    table = values.table
    rows = [row.name for row in table.rows if column in table.columns_of(row)]
    return {title: {row: values.of(row, column.name, title) for row in rows} for title in cell_titles(column)}


def _over_training(cells: Mapping[str, Numbers], scale: Scale, baseline: str) -> Numbers:
    """For each seed over the cells that the baseline has; a row that lacks one of them has none."""
    found: dict[str, dict[int, float]] = {row: {} for row in next(iter(cells.values()))}
    for seed in sorted({seed for cell in cells.values() for own in cell.values() for seed in own}):
        used = [cell for cell in cells.values() if seed in cell.get(baseline, ())] or list(cells.values())
        rows = [row for row in found if all(seed in cell[row] for cell in used)]
        curves = [dict(enumerate(cell[row][seed] for cell in used)) for row in rows]
        for row, mean in zip(rows, over_training(curves, scale) if rows else (), strict=True):
            found[row][seed] = mean
    return found
