"""A study's ratios along a key, from the FILE_VALUE.per_seed.csv of `experiments.gather --by KEY`."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import geometric_mean

from diffusion_lab.intervals import mean_interval
from diffusion_lab.reports.comparison.along import Along, course_table, row
from diffusion_lab.reports.comparison.cells import with_interval
from diffusion_lab.reports.pages.files import markdown
from diffusion_lab.verdicts import MARGIN
from experiments.study_cells import rows, verdicts

FOLDER = Path(__file__).resolve().parent


def along_of(place: Path, key: str, metric: str) -> Along:
    """The rows of all files, each decided by itself, with trend and crossings over the seeds that all files have; the
    first row of the first file is the baseline.

    Args:
        place: the files' path without `_VALUE.per_seed.csv`.
        key: of the configuration, whose values are whole numbers.
        metric: one of which small values are good.
    """
    files = files_of(place)
    values = [*files]
    tables = [rows(files[value], metric) for value in values]
    judged = [verdicts(files[value], metric) for value in values]
    base, *others = tables[0]
    found = Along(place.name, key, [*values], metric, base, "ratio", [math.log(MARGIN)] * len(values), [])
    for name in others:
        effects = [one.get(name) for one in judged]
        found.rows.append(row(name, effects, [t.get(name, {}) for t in tables], [t[base] for t in tables], found))
    return found


def files_of(place: Path) -> dict[int, Path]:
    """Value of the key -> its file, in ascending order."""
    suffix = ".per_seed.csv"
    found = {
        int(path.name.removesuffix(suffix).rpartition("_")[2]): path
        for path in place.parent.glob(f"{place.name}_*{suffix}")
    }
    return dict(sorted(found.items()))


def means(place: str, metric: str) -> str:
    """A table of means over seeds with Student's interval, a row for each method; `place` is relative to
    `experiments/`."""
    tables = {value: rows(path, metric) for value, path in files_of(FOLDER / place).items()}
    lines = ["| | " + " | ".join(f"{value:,}" for value in tables) + " |", "| --- |" + " ---: |" * len(tables)]
    for name in next(iter(tables.values())):
        found = [mean_interval(list(table[name].values())) for table in tables.values()]
        lines.append(f"| {name} | {' | '.join(with_interval(one, 3) for one in found)} |")
    return "\n".join(lines)


def learning_rates(place: Path, metric: str) -> dict[int, dict[float, float]]:
    """Value of the key -> learning rate -> geometric mean over the seeds, of rows that differ in their rate."""
    return {
        value: {
            float(label.rpartition("=")[2]): geometric_mean(own.values()) for label, own in rows(path, metric).items()
        }
        for value, path in files_of(place).items()
    }


def rates(place: str, metric: str, title: str) -> str:
    """A table of these, a row for each value of the key; bold: the least. `place` is relative to `experiments/`."""
    found = learning_rates(FOLDER / place, metric)
    every = sorted({rate for own in found.values() for rate in own})
    lines = [
        f"| {title} | {' | '.join(f'{rate:g}' for rate in every)} |",
        f"| {'---: | ' * (len(every) + 1)}".rstrip(),
    ]
    for value, own in found.items():
        texts = {rate: f"**{mean:.2f}**" if mean == min(own.values()) else f"{mean:.2f}" for rate, mean in own.items()}
        lines.append(f"| {value} | {' | '.join(texts.get(rate, '') for rate in every)} |")
    return "\n".join(lines)


def along(place: str, key: str, metric: str) -> str:
    """The table of `report --within KEY`, with its legend; `place` is relative to `experiments/`."""
    table = course_table(along_of(FOLDER / place, key, metric))
    return f"{markdown(table)}\n{table.legend}"
