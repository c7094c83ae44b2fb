"""A table of a paper: rows of trained models, columns of settings and steps, published values beside them.

A table is one yaml file, `conf/table/PAPER/NAME.yaml`. An entry is a row in a column for one seed: one or several
models that are trained with the overrides of the column, the model, the row in that column and the scale. What is
measured of an entry is the table's `measure` (`diffusion_lab.tables.measure`): one number for each of the column's
cells, which are steps in the paper's count or the names that the column gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diffusion_lab.arguments import check_number
from diffusion_lab.intervals import ESTIMANDS
from diffusion_lab.verdicts import MARGIN

KINDS = ("table", "figure", "ablation")
Overrides = tuple[str, ...]


@dataclass(frozen=True)
class TableModel:
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
class TableColumn:
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
class TableRow:
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
    models: tuple[TableModel, ...] = (TableModel(),)
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
        unit: what the published numbers are, with their unit.
        measure: configuration of the `Measure`.
        estimand: what decides: end, the last cell of a column, or training, the mean over its cells, geometric where
            ratios are compared. The other one stands beside it.
        margin: ratio > 1 up to which two rows are equal.
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
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    baseline: str
    measure: Mapping[str, Any]
    against: str = ""
    unit: str = "FID"
    estimand: str = "end"
    margin: float = MARGIN
    paper: Overrides = ()
    scaled: Overrides = ()
    differs: tuple[str, ...] = ()
    not_stated: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    equal_steps: bool = False
    overturned_by: str = "the same at a larger scale with the other sign"

    def row(self, name: str) -> TableRow:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def baseline_of(self, column: TableColumn) -> str:
        """The row that the others are compared with in a column; empty: none."""
        return column.baseline or self.baseline

    def columns_of(self, row: TableRow) -> list[TableColumn]:
        """The columns that a row has."""
        return [column for column in self.columns if not row.only or column.name in row.only]


def reference_title(table: Table, column: TableColumn) -> str:
    """What the rows of a column are compared with; empty: nothing."""
    baseline = table.baseline_of(column)
    return table.row(baseline).title if baseline else table.against


def cell_titles(column: TableColumn) -> Sequence[str]:
    """Titles of a column's cells: labels, or the paper's steps as 200k and 1M."""
    return column.labels or tuple(thousands(step) for step in column.at)


def thousands(step: int) -> str:
    """200000 -> 200k, 1000000 -> 1M, 26042 -> 26,042."""
    for unit, size in (("M", 10**6), ("k", 1000)):
        if step and step % size == 0:
            return f"{step // size}{unit}"
    return f"{step:,}"


def read_table(name: str, content: Mapping[str, Any]) -> Table:
    """The table in a yaml file's content.

    Raises:
        ValueError: a key is unknown or missing, or a value does not fit the others.
    """
    content = dict(content)
    _check_mappings(name, content)
    columns = tuple(
        _made(TableColumn, f"{name}: {key}", {"title": key, "name": key, **_tuples(value or {})})
        for key, value in content.pop("columns").items()
    )
    rows = tuple(_row(name, key, value or {}) for key, value in content.pop("rows").items())
    table = _made(Table, name, {**_tuples(content), "columns": columns, "rows": rows, "name": name})
    _check_table(table)
    return table


def _row(table: str, name: str, content: Mapping[str, Any]) -> TableRow:
    place, content = f"{table}: {name}", dict(content)
    if "overrides" in content:  # the usual row is one model
        content["models"] = [{"overrides": content.pop("overrides")}]
    if "models" in content:
        content["models"] = tuple(_made(TableModel, place, _tuples(model)) for model in content["models"])
    content |= {key: _tuples(content[key]) for key in ("within", "published") if key in content}
    return _made(TableRow, place, {"title": name, "name": name, **_tuples(content)})


def _made(kind: type, place: str, content: Mapping[str, Any]) -> Any:
    try:
        return kind(**content)
    except TypeError as error:
        known = ", ".join(kind.__dataclass_fields__)
        raise ValueError(f"table={place} must have the keys of {kind.__name__}, {known} ({error})") from error


def _tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _check_mappings(name: str, content: Mapping[str, Any]) -> None:
    """Columns and rows are mappings from names to keys."""
    for key in ("columns", "rows"):
        parts = content.get(key)
        if not isinstance(parts, Mapping) or not parts:
            raise ValueError(f"{key}={parts} of {name} must be one or more names with their keys; see conf/table")
        for part, keys in parts.items():
            if not isinstance(keys, Mapping | None):
                raise ValueError(f"{part}={keys} under {key} of {name} must be keys with values; see conf/table")
            for by_column in {"within", "published", "against"} & (keys or {}).keys():
                if keys and not isinstance(keys[by_column], Mapping):
                    raise ValueError(f"{by_column}={keys[by_column]} of {part} in {name} must be keyed by column")


def _check_table(table: Table) -> None:
    """The parts of a table fit each other."""
    if table.kind not in KINDS:
        raise ValueError(f"kind={table.kind} of {table.name} must be one of {', '.join(KINDS)}")
    if table.estimand not in ESTIMANDS:
        raise ValueError(f"estimand={table.estimand} of {table.name} must be one of {', '.join(ESTIMANDS)}")
    check_number(f"margin of {table.name}", table.margin, "()", 1, math.inf, "use 1.1: equal within 10 %")
    if not isinstance(table.measure, Mapping):
        raise ValueError(f"measure={table.measure} of {table.name} must have a _target_, a subclass of Measure")
    names = [row.name for row in table.rows]
    baselines = [("baseline", part.baseline) for part in (table, *table.columns)]
    for what, name in [*baselines, *(("start", row.start) for row in table.rows)]:
        if name and name not in names:
            raise ValueError(f"{what}={name} of {table.name} must be a row; use one of {', '.join(names)}")
    for column in table.columns:
        _check_column(table, column)
    for row in table.rows:
        _check_row(table, row)


def _check_column(table: Table, column: TableColumn) -> None:
    at: Any = column.at
    steps = at if isinstance(at, tuple) else ()
    if not steps or not all(type(step) is int and step > 0 for step in steps) or list(steps) != sorted(steps):
        raise ValueError(f"at={at} of {column.name} in {table.name} must be a list of ascending optimizer steps")
    if column.labels and len(column.labels) != len(steps):
        raise ValueError(
            f"labels={list(column.labels)} of {column.name} in {table.name} must be one for each of at={list(steps)}; "
            "leave them out for the steps"
        )
    _check_words(table, column.name, column.overrides)
    own = [row.name for row in table.rows if column in table.columns_of(row)]
    if column.baseline and column.baseline not in own:
        raise ValueError(
            f"baseline={column.baseline} of {column.name} in {table.name} must have that column; use one of "
            f"{', '.join(own)}"
        )


def _check_row(table: Table, row: TableRow) -> None:
    columns = {column.name: column for column in table.columns}
    words = set(row.expects.values()) if isinstance(row.expects, Mapping) else {row.expects}
    if words - {"", "lower", "higher"}:
        raise ValueError(
            f"expects={row.expects} of {row.name} in {table.name} must be lower or higher; or leave it out"
        )
    unknown = {*row.within, *row.only, *row.published, *row.against} - columns.keys()
    if unknown:
        raise ValueError(f"row {row.name} of {table.name} must name columns only, and {unknown} are none")
    for overrides in (*row.within.values(), *(own for m in row.models for own in (m.overrides, m.paper, m.scaled))):
        _check_words(table, row.name, overrides)
    for name, values in row.published.items():
        _check_published(table, row, columns[name], values)


def _check_published(table: Table, row: TableRow, column: TableColumn, values: Any) -> None:
    here, at = f"{row.name} in {table.name}", list(column.at)
    if not isinstance(values, tuple) or len(values) != len(at):
        shown = list(values) if isinstance(values, tuple) else values
        raise ValueError(
            f"published={shown} of {here} must have a value for each of at={at}; use null where there is none"
        )
    if not all(value is None or type(value) in (int, float) for value in values):
        raise ValueError(f"published={list(values)} of {here} must be numbers; use null where there is none")


def _check_words(table: Table, place: str, words: Any) -> None:
    if not isinstance(words, tuple | list) or not all(
        isinstance(word, str) and ("=" in word or word[:1] == "~") for word in words
    ):
        raise ValueError(f"overrides={words} of {place} in {table.name} must be a list of key=value; use [key=value]")
