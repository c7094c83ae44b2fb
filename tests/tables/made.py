"""A table with numbers that a test has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diffusion_lab.tables import Table, Value, Values, read_table

CONTENT: dict[str, Any] = {
    "title": "A paper, Table 9",
    "kind": "table",
    "says": "Ours is lower.",
    "experiment": "none",
    "measure": {},
    "baseline": "base",
    "columns": {"linear": {"at": [100_000, 200_000]}, "cosine": {"at": [100_000]}},
    "rows": {
        "base": {"title": "Base", "published": {"linear": [9.0, 5.0], "cosine": [4.0]}},
        "ours": {"title": "Ours", "published": {"linear": [8.0, 3.25], "cosine": [4.5]}},
        "other": {"title": "Other", "only": ["linear"], "expects": "higher"},
    },
}


def table(**changed: Any) -> Table:
    """The table of this module with some keys changed."""
    return read_table("paper/table9", {**CONTENT, **changed})


def values(table: Table, numbers: Mapping[tuple[str, str, str], Sequence[float]]) -> Values:
    """(row, column, cell) -> the value of seed 0, 1, .."""
    return Values(
        table,
        [
            Value(row, column, cell, 10, seed, "fd1k_digits", value, f"{row}-s{seed}")
            for (row, column, cell), own in numbers.items()
            for seed, value in enumerate(own)
        ],
    )
