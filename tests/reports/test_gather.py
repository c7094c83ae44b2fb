"""Values of runs of several machines are gathered in one file of a study."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from experiments.gather import _without, gather
from tests.reports.curves import FD
from tests.reports.test_tables import write_seeds


def lines(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return [line for line in csv.DictReader(file) if line["metric"] == FD]


def test_runs_are_added_to_those_that_a_file_has(tmp_path: Path) -> None:
    first, second, place = tmp_path / "first", tmp_path / "second", tmp_path / "study" / "digits"
    place.parent.mkdir()
    write_seeds(first, [1.0, 2.0], "uniform")
    write_seeds(first, [3.0, 4.0], "logit_normal")
    (path,) = gather(first, place)
    assert path.name == "digits.per_seed.csv"
    before = path.read_bytes()
    assert gather(first, place) == [path] and path.read_bytes() == before
    write_seeds(second, [1.5, 2.5, 3.5], "uniform")
    gather(second, place)
    found = {
        row: [float(line["value"]) for line in lines(path) if line["row"] == row] for row in ("uniform", "logit_normal")
    }
    assert found == {"uniform": [1.5, 2.5, 3.5], "logit_normal": [3.0, 4.0]}
    assert [line["seed"] for line in lines(path)] == ["0", "1", "2", "0", "1"]
    assert all(line["step"] for line in lines(path))


@pytest.mark.parametrize(
    ("row", "by", "found"),
    [
        ("uniform-v max_steps=800", "max_steps", ("uniform-v", "800")),
        ("uniform-v max_steps=800 lr=0.1", "max_steps", ("uniform-v lr=0.1", "800")),
        ("uniform-v", "max_steps", ("uniform-v", "")),
        ("uniform-v max_steps=800", None, ("uniform-v max_steps=800", "")),
    ],
)
def test_a_row_is_named_without_the_key_that_names_its_file(row: str, by: str | None, found: tuple[str, str]) -> None:
    assert _without(row, by) == found


def test_runs_of_two_data_sets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match="must hold runs"):
        gather(tmp_path / "runs", tmp_path / "digits")
