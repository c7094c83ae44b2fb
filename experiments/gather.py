"""Adds the values of finished runs to a study's committed files, which it may take several machines to fill.

    python -m experiments.gather runs/budgets_digits experiments/budgets/digits --by max_steps

reads the runs as `report` does and writes `digits_800.per_seed.csv`, `digits_1600.per_seed.csv`, .., one file for the
runs with each value of the key. Lines that a file has stay; those of a run that is measured again are replaced. Without
--by there is one file, `digits.per_seed.csv`.

A run is known by its folder's name, which ends in the hash of its configuration. What a row is called depends on the
rows beside it, so a file in which the run has another name is not changed.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

from diffusion_lab.cli.errors import refuse
from diffusion_lab.files import write_whole
from diffusion_lab.markup import csv_text
from diffusion_lab.reports import Run, read_runs, sections_of, write_per_seed
from diffusion_lab.reports.comparison.differences import MISSING, lookup
from diffusion_lab.runs.run import RunFolder

COLUMNS = ("row", "run", "seed", "metric", "step", "value", "protocol")
Line = dict[str, str]


def gather(runs: Path, place: Path, by: str | None = None) -> list[Path]:
    """Merge the finished runs below a folder into the files.

    Args:
        runs: a run's or a sweep's folder, or one of several.
        place: the files' name without `_VALUE.per_seed.csv`.
        by: a key of the configuration, whose values have a file each; None: one file.

    Returns:
        The files that were written.

    Raises:
        FileNotFoundError: there are no runs.
        ValueError: the runs of a file are of several data sets or protocols, or one has another row in it.
    """
    folder = read_runs(runs)
    parts: dict[Any, list[Run]] = {}
    for run in folder.runs:
        if run.status == "done":
            parts.setdefault(None if by is None else lookup(run.config, by), []).append(run)
    if MISSING in parts:
        raise ValueError(f"by={by} must be a key of every run's configuration; use e.g. max_steps")
    merged = {}
    for value, own in parts.items():
        path = place.with_name(f"{place.name}{'' if by is None else f'_{value}'}.per_seed.csv")
        merged[path] = _merged(_read(path) if path.exists() else [], _values(folder, own), path)
    for path, lines in merged.items():
        write_whole(path, csv_text(COLUMNS, ([line[key] for key in COLUMNS] for line in lines)).encode())
    return list(merged)


def _values(folder: RunFolder, runs: list[Run]) -> list[Line]:
    """The lines of `report --table` for some runs."""
    sections = sections_of(runs, recorded=folder.questions)
    if len(sections) != 1:
        titles = ", ".join(section.title for section in sections)
        raise ValueError(f"{folder.path} must hold runs of one data set and protocol, and has {titles}")
    with tempfile.TemporaryDirectory() as place:
        return _read(write_per_seed(Path(place) / "table.md", sections))


def _merged(old: list[Line], new: list[Line], path: Path) -> list[Line]:
    """All lines by row and seed, those of a run in their order."""
    named = {line["run"]: line["row"] for line in old}
    for line in new:
        if named.get(line["run"], line["row"]) != line["row"]:
            raise ValueError(
                f"{line['run']} is row {named[line['run']]!r} in {path} and {line['row']!r} here; rename it there, or "
                "gather it together with the runs that it was named beside"
            )
    lines = {(line["run"], line["metric"]): line for line in [*old, *new]}
    rows = list(dict.fromkeys(line["row"] for line in lines.values()))
    return sorted(lines.values(), key=lambda line: (rows.index(line["row"]), int(line["seed"])))


def _read(path: Path) -> list[Line]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m experiments.gather", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("place", type=Path)
    parser.add_argument("--by", metavar="KEY")
    try:
        for path in gather(**vars(parser.parse_args(words))):
            print(f"written: {path}")
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
