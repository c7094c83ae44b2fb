"""How many times fewer images, and how much less training time, a row needs to reach the baseline's final metric.

The factors are those of `diffusion_lab.reports.speedup`, beside what the paper says. Training time is read from a
clock: it holds the cost of a method itself, and compares only runs on equal and equally busy machines.
"""

from __future__ import annotations

from diffusion_lab.reports.cells import Cell, Comparison
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.speedup_of_runs import OfRuns, in_images, in_seconds
from diffusion_lab.reports.speedup_words import HOW, cell, turned
from diffusion_lab.tables.gather import Gathered
from diffusion_lab.tables.table import Column, Table

LEGEND = (
    "Factor by which the baseline needs more images, or more training time, until its own final value is reached; "
    "above 1 the row is faster; geometric mean over seeds with the 95 % interval of Student's t of its logarithm. A "
    f"seed that does not reach the value is a bound, and counted. {HOW} Training time is without evaluations, and "
    "comparable only between runs on machines that were equally busy; it has no interval where the runs were not "
    "trained in the same hours."
)


def groups_of(table: Table, column: Column, gathered: Gathered) -> dict[str, Group]:
    """Name of a row -> its finished runs in a column."""
    found = {row.name: gathered.runs.get((row.name, column.name)) for row in table.rows}
    return {name: Group(list(runs), label=table.row(name).title) for name, runs in found.items() if runs}


def speed(table: Table, column: Column, gathered: Gathered) -> Comparison | None:
    """The factors of all rows of a column; None if what is measured has no curve, or there is no baseline."""
    groups, metric = groups_of(table, column, gathered), gathered.values.quantity
    baseline = table.baseline_of(column)
    base = groups.get(baseline)
    if base is None or metric not in base.runs[0].metric_names:
        return None
    lines, factors = [], []
    for name, own in groups.items():
        if name != baseline:
            published = table.row(name).speedup
            measured = [found(base, own, metric) for found in (in_images, in_seconds)]
            factors.append(measured[0].found)
            texts = [*map(_text, measured), "" if published is None else f"{published:g}"]
            lines.append([Cell(own.label), *map(Cell, texts)])
    if not lines:
        return None
    titles = [f"against {base.label}", "images", "training time", "published"]
    if not any(line[-1].text for line in lines):
        titles, lines = titles[:-1], [line[:-1] for line in lines]
    note = turned([one for one in factors if one is not None], base.label)
    return Comparison(titles, lines, LEGEND, [note] if note else [], left=1)


def _text(found: OfRuns) -> str:
    return found.why if found.found is None else cell(found.found)
