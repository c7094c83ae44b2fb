"""What a table's yaml file must have: one sentence for each fault, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diffusion_lab.tables.table import KINDS, Column, Row, Table


def check_mappings(name: str, content: Mapping[str, Any]) -> None:
    """Columns and rows are mappings from names to keys.

    Raises:
        ValueError: they are not.
    """
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


def check_table(table: Table) -> None:
    """The parts of a table fit each other.

    Raises:
        ValueError: they do not.
    """
    if table.kind not in KINDS:
        raise ValueError(f"kind={table.kind} of {table.name} must be one of {', '.join(KINDS)}")
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


def _check_column(table: Table, column: Column) -> None:
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


def _check_row(table: Table, row: Row) -> None:
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


def _check_published(table: Table, row: Row, column: Column, values: Any) -> None:
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
