"""The values of each seed behind a table, as a CSV file beside it, from which its intervals can be recomputed.

    section,row,run,seed,metric,value,protocol

One line per finished run and value; the first row of a section that has the metric is its baseline. `protocol` is JSON,
and empty for values that are not evaluations. Values are written with all digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from diffusion_lab.markup import csv_text
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.saving import save
from diffusion_lab.reports.sections import Section
from diffusion_lab.reports.tables import VAL_LOSS

COLUMNS = ("section", "row", "run", "seed", "metric", "value", "protocol")


def path_beside(table: str | Path) -> Path:
    """digits.md -> digits.per_seed.csv"""
    return Path(table).with_suffix(".per_seed.csv")


def write_per_seed(table: str | Path, sections: Sequence[Section]) -> Path:
    """Write the file beside the table, in one atomic replacement.

    Raises:
        ValueError: the path cannot be written to.
    """
    path = path_beside(table)
    lines = [
        (section.title, group.label, *line)
        for section in sections
        for group in section.groups
        for line in _lines(group, section.metric)
    ]
    save(path, csv_text(COLUMNS, lines).encode(), "table")
    return path


def _lines(group: Group, metric: str) -> Iterator[tuple[object, ...]]:
    for run in group.done:
        names = dict.fromkeys([metric, *run.metric_names, VAL_LOSS])
        values = {name: run.last(name) for name in names}
        values |= {"images_per_second": run.images_per_second, "seconds": run.seconds}
        for name, value in values.items():
            if value is not None:
                protocol = run.protocol(name)
                text = json.dumps(protocol, sort_keys=True, separators=(",", ":")) if protocol else ""
                yield run.name, "" if run.seed is None else run.seed, name, repr(value), text
