"""The numbers of a table by seed, and their file, from which every printed interval can be recomputed.

    row,column,cell,step,seed,quantity,value,run

`cell` is the step in the paper's count, or the label; `step` is the optimizer step here; values have all digits.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from diffusion_lab.markup import csv_text
from diffusion_lab.tables.table import Table, cell_titles

COLUMNS = ("row", "column", "cell", "step", "seed", "quantity", "value", "run")


class Value(NamedTuple):
    """One number of one seed."""

    row: str
    column: str
    cell: str
    step: int
    seed: int
    quantity: str
    value: float
    run: str


class Values:
    """The numbers of a table.

    Args:
        table: the table.
        values: in any order.

    Raises:
        ValueError: two numbers of one cell measure different quantities.
    """

    def __init__(self, table: Table, values: Iterable[Value]) -> None:
        rows = {row.name: i for i, row in enumerate(table.rows)}
        places = {(c.name, cell): (i, k) for i, c in enumerate(table.columns) for k, cell in enumerate(cell_titles(c))}
        self.table = table
        self.values = sorted(values, key=lambda v: (places[v.column, v.cell], rows[v.row], v.seed))
        self._check()

    def _check(self) -> None:
        quantities = sorted({value.quantity for value in self.values})
        if len(quantities) > 1:
            raise ValueError(f"the runs of {self.table.name} measure different quantities, {', '.join(quantities)}")

    @property
    def quantity(self) -> str:
        """The name of what is measured; empty without a number."""
        return self.values[0].quantity if self.values else ""

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({value.seed for value in self.values})

    def of(self, row: str, column: str, cell: str) -> dict[int, float]:
        """seed -> value of a cell."""
        return {v.seed: v.value for v in self.values if (v.row, v.column, v.cell) == (row, column, cell)}

    def step(self, column: str, cell: str) -> int | None:
        """The optimizer step of a cell; None without a number."""
        return next((v.step for v in self.values if (v.column, v.cell) == (column, cell)), None)


def per_seed_csv(values: Sequence[Value]) -> str:
    """The file as text."""
    return csv_text(COLUMNS, [(*v[:6], repr(v.value), v.run) for v in values])


def read_per_seed(text: str) -> list[Value]:
    """The values in a file's text."""
    lines = csv.DictReader(io.StringIO(text))
    return [
        Value(
            line["row"],
            line["column"],
            line["cell"],
            int(line["step"]),
            int(line["seed"]),
            line["quantity"],
            float(line["value"]),
            line["run"],
        )
        for line in lines
    ]
