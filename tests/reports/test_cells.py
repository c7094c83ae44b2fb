"""Every number of a row, as it is printed, from runs whose numbers are given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.reports import compare, group_runs, read_runs
from tests.reports.synthetic import log, set_rate, write_run

FD = "fd1k_digits"


def write(
    folder: Path, method: str, seed: int, fd: float, loss: float, rate: float, seconds: float, **changed: object
) -> None:
    """A finished run with these numbers at its end, other ones before it."""
    write_run(folder, method, seed, steps=250, **changed)
    log(folder, 300, **{f"metrics__{FD}": fd}, val__loss=loss)
    set_rate(folder, rate)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"seconds": seconds}))


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, str]]:
    """Title -> text of the baseline's row and of the other one."""
    write(tmp_path / "a", "uniform", 0, 2.0, 0.1, 100.0, 7300.0)
    write(tmp_path / "b", "uniform", 1, 4.0, 0.3, 200.0, 7500.0)
    write(tmp_path / "c", "logit_normal", 0, 1.0, 0.5, 50.0, 100.0)
    write(tmp_path / "d", "logit_normal", 1, 2.0, 0.7, 100.0, 150.0)
    write_run(tmp_path / "e", "logit_normal", 2, steps=250, result="failed")  # enters no mean
    table = compare(group_runs(read_runs(tmp_path).runs), FD)
    lines = [[cell.text for cell in line] for line in table.lines]
    return [dict(zip([title.split(" to ")[0] for title in table.titles], line, strict=True)) for line in lines]


def test_a_row_says_means_and_intervals_of_the_given_numbers(rows: list[dict[str, str]]) -> None:
    """t(0.95, 1) = 12.706; the standard deviations over sqrt(2) are 1 of 2, 4 and 0.5 of 1, 2."""
    base, other = rows
    assert base[f"{FD} ↓"] == "3.000 [−9.706, 15.706]"
    assert other[f"{FD} ↓"] == "1.500 [−4.853, 7.853]"
    assert (base["ratio"], other["ratio"]) == ("baseline", "0.50")  # two seeds have no interval that is a verdict
    assert (base["val loss"], other["val loss"]) == ("0.2000", "0.6000")
    assert (base["images/s"], other["images/s"]) == ("150", "75.0")
    assert (base["cost"], other["cost"]) == ("1", "2.00 [2.00, 2.00]")
    assert (base["time"], other["time"]) == ("2 h 03 min", "2 min 05 s")
    assert (base["runs"], other["runs"]) == ("n=2", "n=2 (1 failed)")
