"""The numbers of a table by seed, from its finished runs, and their file, from which every interval can be recomputed.

    row,column,cell,step,seed,quantity,value,run,latents

`cell` is the step in the paper's count, or the label; `step` is the optimizer step here; values have all digits.
`latents` says whether all seeds were sampled from the same ones: `common`, or `by seed`; a file of before this column
has common ones; empty where nothing is sampled.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.markup import csv_text
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.run import Run
from diffusion_lab.tables.measure import Analyse, Entry, Measure
from diffusion_lab.tables.table import Table, TableColumn, TableRow, cell_titles


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
    latents: str = ""


COLUMNS = Value._fields
COMMON, BY_SEED = "common", "by seed"


class Values:
    """The numbers of a table.

    Args:
        table: the table.
        values: in any order.

    Raises:
        ValueError: two numbers measure different quantities, or have latents by different rules.
    """

    def __init__(self, table: Table, values: Iterable[Value]) -> None:
        rows = {row.name: i for i, row in enumerate(table.rows)}
        places = {(c.name, cell): (i, k) for i, c in enumerate(table.columns) for k, cell in enumerate(cell_titles(c))}
        self.table = table
        self.values = sorted(values, key=lambda v: (places[v.column, v.cell], rows[v.row], v.seed))
        quantities = sorted({value.quantity for value in self.values})
        if len(quantities) > 1:
            raise ValueError(f"the runs of {self.table.name} measure different quantities, {', '.join(quantities)}")
        rules = {value.latents for value in self.values} - {""}
        self.latents = next(iter(rules), "")
        if len(rules) > 1:
            raise ValueError(
                f"latents={', '.join(sorted(rules))} of the runs of {self.table.name} must be one rule; train all of "
                "its rows and seeds with the same metrics.seed"
            )

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
    return csv_text(COLUMNS, [(*v[:6], repr(v.value), *v[7:]) for v in values])


def read_per_seed(text: str) -> list[Value]:
    """The values in a file's text."""
    kinds = {"step": int, "seed": int, "value": float}
    lines = csv.DictReader(io.StringIO(text))
    return [Value(*(kinds.get(key, str)(line.get(key, COMMON)) for key in COLUMNS)) for line in lines]


class TrainedRun(NamedTuple):
    """A run folder, and which it is: number `model` of a row in a column for one seed, with the steps of the cells."""

    row: TableRow
    column: TableColumn
    model: int
    seed: int
    folder: Path
    steps: tuple[int, ...]


class Gathered(NamedTuple):
    """The numbers, the runs behind them, and what has none.

    Attributes:
        values: the numbers.
        runs: (row, column) -> the runs of the row's first model, by seed.
        missing: (row, column) -> why some seeds have no number.
        every: all runs behind the numbers, each once.
    """

    values: Values
    runs: Mapping[tuple[str, str], Sequence[Run]]
    missing: Mapping[tuple[str, str], str]
    every: Sequence[Run]


def gather(table: Table, trained: Sequence[TrainedRun], measure: Measure, analyse: Analyse) -> Gathered:
    """Measure every entry whose runs are done, of all runs of a table; `analyse` computes an analysis of runs."""
    read: dict[Path, Run] = {one.folder: read_run(one.folder) for one in trained}
    entries: dict[tuple[str, str, int], list[TrainedRun]] = {}
    for one in trained:
        entries.setdefault((one.row.name, one.column.name, one.seed), []).append(one)
    values, runs, every = [], {}, {}
    missing: dict[tuple[str, str], list[str]] = {}
    for (row, column, seed), models in entries.items():
        own = tuple(read[one.folder] for one in sorted(models, key=lambda one: one.model))
        waiting = [run for run in own if run.status != "done"]
        if waiting:
            why = f"seed {seed} is missing: {waiting[0].cause or waiting[0].status}"
            missing.setdefault((row, column), []).append(why)
            continue
        start = entries.get((models[0].row.start, column, seed))
        first, begun = models[0], read[start[0].folder] if start else None
        entry = Entry(first.row, first.column, seed, own, begun, first.steps, analyse)
        runs.setdefault((row, column), []).append(own[0])
        every |= {run.folder: run for run in own}
        found, absent = _values(entry, measure)
        values += found
        if absent:
            missing.setdefault((row, column), []).append(f"seed {seed} has no finite number at {', '.join(absent)}")
    return Gathered(
        Values(table, values), runs, {place: "; ".join(said) for place, said in missing.items()}, list(every.values())
    )


def _values(entry: Entry, measure: Measure) -> tuple[list[Value], list[str]]:
    """The finite numbers of an entry, and the cells without one; of an entry without a quantity nothing is expected."""
    measured = measure(entry)
    cells = zip(cell_titles(entry.column), entry.steps, measured.values, strict=True)
    name, seed = " ".join(run.folder.name for run in entry.runs), measured.protocol.get("seed")
    latents = "" if seed is None else COMMON if isinstance(seed, int) else BY_SEED
    found = [
        Value(entry.row.name, entry.column.name, cell, step, entry.seed, measured.quantity, float(value), name, latents)
        for cell, step, value in cells
        if value is not None and isfinite(value)
    ]
    there = {value.cell for value in found}
    return found, [cell for cell in cell_titles(entry.column) if measured.quantity and cell not in there]
