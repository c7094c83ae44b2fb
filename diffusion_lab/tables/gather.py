"""From finished runs to the numbers of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.run import Run
from diffusion_lab.tables.measure import Analyse, Entry, Measure
from diffusion_lab.tables.table import Column, Row, Table, cell_titles
from diffusion_lab.tables.values import Value, Values


class Trained(NamedTuple):
    """A run folder, and which it is: number `model` of a row in a column for one seed, with the steps of the cells."""

    row: Row
    column: Column
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


def gather(table: Table, trained: Sequence[Trained], measure: Measure, analyse: Analyse) -> Gathered:
    """Measure every entry whose runs are done.

    Args:
        table: the table.
        trained: all of its runs, done or not.
        measure: the table's.
        analyse: computes an analysis of runs.
    """
    read: dict[Path, Run] = {one.folder: read_run(one.folder) for one in trained}
    entries: dict[tuple[str, str, int], list[Trained]] = {}
    for one in trained:
        entries.setdefault((one.row.name, one.column.name, one.seed), []).append(one)
    values, runs, every = [], {}, {}
    missing: dict[tuple[str, str], list[str]] = {}
    for (row, column, seed), models in entries.items():
        own = tuple(read[one.folder] for one in sorted(models, key=lambda one: one.model))
        waiting = [run for run in own if run.status != "done"]
        if waiting:
            why = f"seed {seed} is not there: {waiting[0].cause or waiting[0].status}"
            missing.setdefault((row, column), []).append(why)
            continue
        start = entries.get((models[0].row.start, column, seed))
        entry = Entry(
            models[0].row,
            models[0].column,
            seed,
            own,
            read[start[0].folder] if start else None,
            models[0].steps,
            analyse,
        )
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
    name = " ".join(run.folder.name for run in entry.runs)
    found = [
        Value(entry.row.name, entry.column.name, cell, step, entry.seed, measured.quantity, float(value), name)
        for cell, step, value in cells
        if value is not None and isfinite(value)
    ]
    there = {value.cell for value in found}
    return found, [cell for cell in cell_titles(entry.column) if measured.quantity and cell not in there]
