"""Values of runs of several machines are gathered in one file of a study."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from diffusion_lab.reports import read_runs, sections_of
from experiments.gather import gather, main
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


def test_each_budget_has_a_file_also_where_there_is_one_alone(tmp_path: Path) -> None:
    """The names of rows have the key where several values lie beside one another, and only there."""
    for steps in (800, 1600):
        write_seeds(tmp_path / "runs" / f"{steps}", [1.0, 2.0], "uniform", max_steps=steps)
    assert len(sections_of(read_runs(tmp_path / "runs").runs)[0].groups) == 2
    both = gather(tmp_path / "runs", tmp_path / "digits", by="max_steps")
    assert sorted(path.name for path in both) == ["digits_1600.per_seed.csv", "digits_800.per_seed.csv"]
    whole = {path: path.read_bytes() for path in both}
    assert {line["row"] for path in both for line in lines(path)} == {"uniform"}
    shutil.rmtree(tmp_path / "runs" / "800")
    (alone,) = gather(tmp_path / "runs", tmp_path / "digits", by="max_steps")
    assert alone.name == "digits_1600.per_seed.csv" and {path: path.read_bytes() for path in both} == whole


def test_a_run_that_has_another_name_in_the_file_is_refused(tmp_path: Path) -> None:
    write_seeds(tmp_path / "runs", [1.0, 2.0], "uniform")
    (path,) = gather(tmp_path / "runs", tmp_path / "digits")
    path.write_text(path.read_text().replace("\nuniform,", "\nuniform lr=0.1,"))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is row 'uniform lr=0.1' in .* and 'uniform' here"):
        gather(tmp_path / "runs", tmp_path / "digits")
    assert path.read_bytes() == before


def test_what_cannot_be_gathered_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert main([str(tmp_path / "none"), str(tmp_path / "digits")]) == 2
    write_seeds(tmp_path / "runs", [1.0], "uniform")
    assert main([str(tmp_path / "runs"), str(tmp_path / "digits"), "--by", "max_stepz"]) == 2
    said = capsys.readouterr().err
    assert "must hold runs" in said and "by=max_stepz must be a key" in said
