"""What one more hour would buy for a table, in a sentence or two."""

from __future__ import annotations

from diffusion_lab.reports.comparison.rows import Table
from diffusion_lab.runs.pilot import what_next


def next_hour_words(table: Table) -> str:
    """The sentences of `planning.NextHour` for the rows that were decided together; "" if the runs do not tell."""
    rows = [
        [run for run in row.group.done if run.seed in end]
        for row, end in zip(table.rows, table.evidence.end, strict=True)
        if row.is_baseline or row.verdict is not None
    ]
    found = what_next(rows, table.metric, table.estimand) if table.scale == "ratio" else None
    return str(found) if found else ""
