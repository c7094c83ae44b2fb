"""run.json, result.json and sweep.json: one form, whoever writes them, and what damage does."""

import json
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.runs.lines import append_evaluations, append_lines
from diffusion_lab.runs.record import (
    as_error,
    is_done,
    read_record,
    read_result,
    read_sweep,
    result_stamp,
    write_failure,
    write_result,
    write_sweep,
)


def measured(step: int, name: str, value: float, protocol: dict[str, Any]) -> dict[str, Any]:
    """A row of evaluations.jsonl."""
    return {"step": step, "name": name, "value": value, "protocol": protocol}


@pytest.mark.parametrize(
    ("result", "max_steps", "done"),
    [
        ({"status": "done", "step": 10}, 10, True),
        ({"status": "done", "step": 10}, 9, True),
        ({"status": "done", "step": 10}, 11, False),
        ({"status": "done"}, 0, True),
        ({"status": "done"}, 1, False),
        ({"status": "done", "step": "10"}, 1, False),
        ({"status": "failed", "step": 10}, 10, False),
        ({}, 0, False),
    ],
)
def test_done_is_a_status_and_a_step(result: dict[str, Any], max_steps: int, done: bool) -> None:
    assert is_done(result, max_steps) is done


def test_a_result_has_the_newest_numbers(tmp_path: Path) -> None:
    values = [
        {"step": 1, "val/loss": 3.0, "train/loss": 9.0},
        {"step": 2, "val/loss": 2.0},
        {"step": 2, "val/x": [1.0]},
    ]
    append_lines(tmp_path / "metrics.jsonl", values)
    append_evaluations(tmp_path, [measured(1, "fid", 7.0, {})])
    append_evaluations(tmp_path, [measured(2, "fid", 6.0, {}), measured(2, "is", 5.0, {})])
    write_result(tmp_path, "interrupted", 2, ValueError("why"), seconds=1.5)
    result = read_result(tmp_path)
    assert (result["status"], result["step"], result["metrics"]) == ("interrupted", 2, {"val/loss": 2.0})
    assert [line["value"] for line in result["evaluations"]] == [6.0, 5.0]
    assert (result["seconds"], result["images_per_second"]) == (1.5, None)
    assert (result["error"]["type"], result["error"]["message"]) == ("ValueError", "why")
    assert "ValueError: why" in result["error"]["traceback"]


def test_a_failure_keeps_the_numbers_and_the_form(tmp_path: Path) -> None:
    write_failure(tmp_path, as_error("killed", "by 9"))
    assert list(read_result(tmp_path).items())[:2] == [("status", "failed"), ("step", 0)]
    append_lines(tmp_path / "metrics.jsonl", [{"step": 4, "metrics/fid": 2.0}])
    write_result(tmp_path, "done", 4, seconds=3.0)
    before, stamp = read_result(tmp_path), result_stamp(tmp_path)
    write_failure(tmp_path, as_error("killed", "by 9", "trace"))
    error = {"type": "killed", "message": "by 9", "traceback": "trace"}
    assert list(read_result(tmp_path).items()) == list((before | {"status": "failed", "error": error}).items())
    assert stamp != result_stamp(tmp_path) and result_stamp(tmp_path / "none") is None


def test_a_damaged_result_is_none(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "done", "st')
    assert read_result(tmp_path) == {}


def test_a_record_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text('{"config": {"seed": 0}}')
    assert read_record(tmp_path / "a", "run") == {"config": {"seed": 0}}
    with pytest.raises(FileNotFoundError, match=f"run={tmp_path}/b must be .*; runs there: {tmp_path}/a$"):
        read_record(tmp_path / "b", "run")
    for content in ("", "[]", '{"config": 1}', "[" * 100_000):
        (tmp_path / "a" / "run.json").write_text(content)
        with pytest.raises(ValueError, match="run=.*/a must hold an undamaged run.json .*; restore a copy"):
            read_record(tmp_path / "a", "run")


def test_a_sweep_remembers_all_jobs_and_each_once(tmp_path: Path) -> None:
    write_sweep(tmp_path, "first", [{"dir": "a", "overrides": ["x=1"]}, {"dir": "b", "overrides": []}])
    write_sweep(tmp_path, "second", [{"dir": "a", "overrides": ["x=2"]}])
    write_sweep(tmp_path, "first", [])
    jobs = [{"dir": "b", "overrides": []}, {"dir": "a", "overrides": ["x=2"]}]
    assert read_sweep(tmp_path) == (["first", "second"], jobs)
    assert json.loads((tmp_path / "sweep.json").read_text()) == {
        "name": tmp_path.name,
        "commands": ["first", "second"],
        "jobs": jobs,
    }


def test_a_record_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cure was to remove it."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "run.json")

    monkeypatch.setattr("diffusion_lab.runs.record.object_in", refuse)
    with pytest.raises(ValueError, match=r"^run=.* must hold a run.json that can be read .*; change its permissions$"):
        read_record(tmp_path, "run")
