"""Adds the values of finished runs to a study's committed files, which it may take several machines to fill.

    python -m experiments.gather runs/budgets_digits experiments/budgets/digits --by max_steps

reads the runs as `report` does and writes `digits_800.per_seed.csv`, `digits_1600.per_seed.csv`, .., one file for each
value of the key that the rows' names have, in which rows are named without it. Lines that a file has stay; those of a
run that is measured again are replaced. Without --by there is one file, `digits.per_seed.csv`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from pathlib import Path

from diffusion_lab.files import write_whole
from diffusion_lab.markup import csv_text
from diffusion_lab.reports import read_runs, sections_of, write_per_seed

COLUMNS = ("row", "run", "seed", "metric", "step", "value", "protocol")
Lines = dict[tuple[str, str, str], dict[str, str]]  # (row, run, metric) -> line


def gather(runs: Path, place: Path, by: str | None = None) -> list[Path]:
    """Merge the finished runs below a folder into the files; returns those that were written.

    Raises:
        ValueError: the runs are of several data sets or protocols.
    """
    found: dict[Path, Lines] = {}
    for line in _values(runs):
        row, value = _without(line["row"], by)
        path = place.with_name(f"{place.name}{f'_{value}' if value else ''}.per_seed.csv")
        found.setdefault(path, _committed(path))[row, line["run"], line["metric"]] = {**line, "row": row}
    for path, lines in found.items():
        rows = list(dict.fromkeys(line["row"] for line in lines.values()))
        ordered = sorted(lines.values(), key=lambda line: (rows.index(line["row"]), int(line["seed"])))
        write_whole(path, csv_text(COLUMNS, ([line[key] for key in COLUMNS] for line in ordered)).encode())
    return list(found)


def _values(runs: Path) -> list[dict[str, str]]:
    """The lines of `report --table`."""
    folder = read_runs(runs)
    sections = sections_of(folder.runs, recorded=folder.questions)
    if len(sections) != 1:
        titles = ", ".join(section.title for section in sections) or "none"
        raise ValueError(f"{runs} must hold runs of one data set and protocol, and has {titles}")
    with tempfile.TemporaryDirectory() as place:
        return _read(write_per_seed(Path(place) / "table.md", sections))


def _without(row: str, by: str | None) -> tuple[str, str]:
    """The name of a row without the key, and the key's value; "" where the name does not have it."""
    found = re.search(rf" ?\b{re.escape(by)}=(\S+)", row) if by else None
    return (row.replace(found[0], ""), found[1]) if found else (row, "")


def _committed(path: Path) -> Lines:
    lines = _read(path) if path.exists() else []
    return {(line["row"], line["run"], line["metric"]): line for line in lines}


def _read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m experiments.gather", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("place", type=Path)
    parser.add_argument("--by", metavar="KEY")
    for path in gather(**vars(parser.parse_args(words))):
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
