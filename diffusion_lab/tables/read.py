"""A table from the content of its yaml file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diffusion_lab.tables.check import check_mappings, check_table
from diffusion_lab.tables.table import Column, Model, Row, Table


def read_table(name: str, content: Mapping[str, Any]) -> Table:
    """The table in a yaml file's content.

    Raises:
        ValueError: a key is unknown or missing, or a value does not fit the others.
    """
    content = dict(content)
    check_mappings(name, content)
    columns = tuple(_column(name, key, value or {}) for key, value in content.pop("columns").items())
    rows = tuple(_row(name, key, value or {}) for key, value in content.pop("rows").items())
    table = _made(Table, name, {**_tuples(content), "columns": columns, "rows": rows, "name": name})
    check_table(table)
    return table


def _column(table: str, name: str, content: Mapping[str, Any]) -> Column:
    return _made(Column, f"{table}: {name}", {"title": name, "name": name, **_tuples(content)})


def _row(table: str, name: str, content: Mapping[str, Any]) -> Row:
    place, content = f"{table}: {name}", dict(content)
    if "overrides" in content:  # the usual row is one model
        content["models"] = [{"overrides": content.pop("overrides")}]
    if "models" in content:
        content["models"] = tuple(_made(Model, place, _tuples(model)) for model in content["models"])
    content |= {key: _tuples(content[key]) for key in ("within", "published") if key in content}
    return _made(Row, place, {"title": name, "name": name, **_tuples(content)})


def _made(kind: type, place: str, content: Mapping[str, Any]) -> Any:
    try:
        return kind(**content)
    except TypeError as error:
        known = ", ".join(kind.__dataclass_fields__)
        raise ValueError(f"table={place} must have the keys of {kind.__name__}, {known} ({error})") from error


def _tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
