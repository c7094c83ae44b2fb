"""Line files: what is appended comes back, and a resumed run finds them as they were at its checkpoint."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.runs.lines import (
    append_evaluations,
    append_lines,
    cut_back,
    lengths,
    read_evaluated,
    read_lines,
    write_evaluated,
)

NAMES = ("metrics.jsonl", "evaluations.jsonl", "timing.jsonl")


def measured(step: int, name: str, value: float, protocol: dict[str, Any]) -> dict[str, Any]:
    """A row of evaluations.jsonl."""
    return {"step": step, "name": name, "value": value, "protocol": protocol}


def rows(*steps: int) -> list[dict[str, float]]:
    return [{"step": step, "value": 1 / step} for step in steps]


def test_lines_come_back_and_damage_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    append_lines(path, rows(1, 2))
    append_lines(path, [{"step": 3, "value": math.inf}])
    assert read_lines(path) == [*rows(1, 2), {"step": 3, "value": None}]
    path.write_bytes(path.read_bytes() + b'{"stp": 4}\n[5]\n\xff\n{"step": "6"}\n{"step": 7}\n{"ste')
    assert [row["step"] for row in read_lines(path)] == [1, 2, 3, 7]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    monkeypatch.setattr("diffusion_lab.runs.lines.regular", os.open)  # which refuses a device
    with pytest.raises(OSError) as caught:
        append_lines(full, rows(1))
    assert caught.value.errno == errno.ENOSPC


def test_evaluations_are_appended_as_they_are(tmp_path: Path) -> None:
    path = append_evaluations(tmp_path, [measured(5, "fid", 1.5, {"seed": 0}), measured(5, "is", 2.0, {})])
    assert path.read_text() == (
        '{"step": 5, "name": "fid", "value": 1.5, "protocol": {"seed": 0}}\n'
        '{"step": 5, "name": "is", "value": 2.0, "protocol": {}}\n'
    )


def test_a_resumed_run_writes_each_line_once(tmp_path: Path) -> None:
    for name in NAMES:
        append_lines(tmp_path / name, rows(1, 2))
    at_checkpoint, before = lengths(tmp_path), {name: (tmp_path / name).read_bytes() for name in NAMES}
    assert set(at_checkpoint) == {"metrics.jsonl", "evaluations.jsonl"}  # a clock decides how long the third is
    for name in NAMES[:2]:
        append_lines(tmp_path / name, rows(2))  # an evaluation of step 2 that was killed
    for name in NAMES[1:]:
        append_lines(tmp_path / name, rows(3))
    cut_back(tmp_path, 2, at_checkpoint, True)
    assert {name: (tmp_path / name).read_bytes() for name in NAMES} == before


def test_a_file_that_the_checkpoint_did_not_have_is_emptied(tmp_path: Path) -> None:
    """The first evaluation was killed after its lines were written; without a checkpoint nothing is cut."""
    append_lines(tmp_path / "metrics.jsonl", rows(1))
    at_checkpoint = lengths(tmp_path)
    append_evaluations(tmp_path, [measured(1, "fid", 1.5, {})])
    before = lengths(tmp_path)
    for sizes, owed in ((None, True), (at_checkpoint, False), (at_checkpoint | {"evaluations.jsonl": 1}, False)):
        cut_back(tmp_path, 1, sizes, owed)  # what `diffusion-lab evaluate` has written, if nothing is owed
        assert lengths(tmp_path) == before
    cut_back(tmp_path, 1, at_checkpoint, True)
    assert lengths(tmp_path) == at_checkpoint | {"evaluations.jsonl": 0}


def test_a_foreign_checkpoint_cuts_nothing_outside_of_the_run(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    append_lines(run / "metrics.jsonl", rows(1))
    other.write_text("mine")
    cut_back(run, 1, {"../other": 0, str(other): 0, "metrics.jsonl": 3}, True)
    assert other.read_text() == "mine"
    assert (run / "metrics.jsonl").stat().st_size == 3  # so that it does cut


def test_what_is_evaluated_holds_for_one_step(tmp_path: Path) -> None:
    append_lines(tmp_path / "metrics.jsonl", rows(1))
    write_evaluated(tmp_path, 8, ["Validation"])
    assert read_evaluated(tmp_path, 8) == (["Validation"], {"metrics.jsonl": len(json.dumps(rows(1)[0])) + 1})
    assert read_evaluated(tmp_path, 9) is None
    (tmp_path / "evaluated.json").write_text('{"step": 8, "done": 1, "lines": {}}')
    assert read_evaluated(tmp_path, 8) is None


def test_a_line_that_a_kill_has_cut_off_takes_none_of_the_next_with_it(tmp_path):
    """`evaluate` wrote its first value onto it, and said that it was written."""
    path = tmp_path / "lines.jsonl"
    append_lines(path, rows(1, 2))
    path.write_bytes(path.read_bytes()[:-5])
    append_lines(path, rows(3))
    append_lines(path, rows(4))
    assert [row["step"] for row in read_lines(path)] == [1, 3, 4] and path.read_bytes().count(b"\n\n") == 0
