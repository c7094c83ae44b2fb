"""A table of a paper: rows of trained models, columns of settings and steps, published values beside them.

A table is one yaml file, `conf/table/PAPER/NAME.yaml`. An entry is a row in a column for one seed: one or several
models that are trained with the overrides of the column, the model, the row in that column and the scale. What is
measured of an entry is the table's `measure` (`diffusion_lab.tables.measure`): one number for each of the column's
cells, which are steps in the paper's count or the names that the column gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = ("table", "figure", "ablation")
Overrides = tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """One training of an entry.

    Args:
        overrides: of `diffusion-lab train`, at every scale.
        paper: further ones at the paper's scale.
        scaled: further ones at every other scale.
        seed: added to the seed of the entry.
    """

    overrides: Overrides = ()
    paper: Overrides = ()
    scaled: Overrides = ()
    seed: int = 0


@dataclass(frozen=True)
class Column:
    """Settings that all rows share, and the cells measured under them.

    Args:
        name: key in the yaml file.
        title: as the paper has it.
        at: the paper's optimizer steps of the cells, ascending; of a measure without steps, one number for each label.
        labels: titles of the cells; empty: the steps.
        experiment: preset of the runs; empty: the table's.
        overrides: of `diffusion-lab train`.
        baseline: row that the others are compared with here; empty: the table's.
    """

    name: str
    title: str
    at: tuple[int, ...]
    labels: tuple[str, ...] = ()
    experiment: str = ""
    overrides: Overrides = ()
    baseline: str = ""


@dataclass(frozen=True)
class Row:
    """A method.

    Args:
        name: key in the yaml file.
        title: as the paper has it.
        models: what is trained for an entry.
        within: column -> overrides in that column alone.
        only: the columns that the row has; empty: all.
        published: column -> one value or None for each cell.
        expects: what the paper says of this row against the baseline where it has no numbers: lower or higher in all
            columns, or by column; empty: nothing.
        against: column -> a number that takes the place of the baseline's, one for all seeds and cells.
        experiment: preset of the runs; empty: the column's.
        speedup: how many times as fast as the baseline the paper says it is; None: nothing.
        start: a row from whose weights this one starts; empty: from new ones.
        absent: scale -> why the row cannot be trained at that scale.
        pick: what the measure needs to know about this row.
    """

    name: str
    title: str
    models: tuple[Model, ...] = (Model(),)
    within: Mapping[str, Overrides] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    published: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    expects: str | Mapping[str, str] = ""
    against: Mapping[str, float] = field(default_factory=dict)
    experiment: str = ""
    speedup: float | None = None
    start: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)
    pick: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table, a figure or an ablation.

    Args:
        name: paper/name.
        title: the paper's name of it.
        kind: table, figure or ablation.
        says: what the paper concludes from it, in a sentence.
        experiment: preset with the settings that all rows share, as the paper states them.
        columns, rows: at least one each.
        baseline: row that the others are compared with; empty: the numbers that rows are `against`, if they have some.
        against: what these numbers are.
        measure: configuration of the `Measure`.
        paper, scaled: overrides of all runs at the paper's scale, and at every other.
        differs: sentences: where the smaller scales differ from the paper beside data, network, batch and length.
        not_stated: sentences: what the paper does not state, and what we chose.
        periods: configuration keys that are periods of a method, in optimizer steps: at a smaller scale at most a
            500th of the run.
        equal_steps: whether all runs have the scale's steps, instead of shares of the longest one's: for rows of
            different kinds of models.
        overturned_by: what would overturn a verdict, beside more seeds.
    """

    name: str
    title: str
    kind: str
    says: str
    experiment: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    baseline: str
    measure: Mapping[str, Any]
    against: str = ""
    paper: Overrides = ()
    scaled: Overrides = ()
    differs: tuple[str, ...] = ()
    not_stated: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    equal_steps: bool = False
    overturned_by: str = "the same at a larger scale with the other sign"

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def baseline_of(self, column: Column) -> str:
        """The row that the others are compared with in a column; empty: none."""
        return column.baseline or self.baseline

    def columns_of(self, row: Row) -> list[Column]:
        """The columns that a row has."""
        return [column for column in self.columns if not row.only or column.name in row.only]


def reference_title(table: Table, column: Column) -> str:
    """What the rows of a column are compared with; empty: nothing."""
    baseline = table.baseline_of(column)
    return table.row(baseline).title if baseline else table.against


def cell_titles(column: Column) -> Sequence[str]:
    """Titles of a column's cells: labels, or the paper's steps as 200k and 1M."""
    return column.labels or tuple(thousands(step) for step in column.at)


def thousands(step: int) -> str:
    """200000 -> 200k, 1000000 -> 1M, 26042 -> 26,042."""
    for unit, size in (("M", 10**6), ("k", 1000)):
        if step and step % size == 0:
            return f"{step // size}{unit}"
    return f"{step:,}"
