"""In which pieces a run is repeated, what `evaluate` has added to it, and that no temporary folder is named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.commands.verify import _report
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.outcome import from_here, outcome, temporary
from diffusion_lab.cli.repetition import Repetition, training_ends
from diffusion_lab.cli.resume_checkpoint import former_ends
from diffusion_lab.runs import digest
from diffusion_lab.runs.find import read_run


def checkpoint(step: int, max_steps: int) -> dict[str, Any]:
    return {"global_step": step, "callbacks": {"RunRecord": {"config": {"max_steps": max_steps}}}}


@pytest.mark.parametrize(
    ("record", "step", "then", "now", "ends"),
    [
        ({}, 4, 4, 8, [4]),
        ({"ends": [4]}, 8, 8, 12, [4, 8]),
        ({"ends": [4]}, 4, 4, 8, [4]),  # killed before its first checkpoint beyond
        ({}, 3, 4, 8, []),  # killed before its end
        ({"ends": [4]}, 3, 4, 8, []),  # an earlier checkpoint, because the last is damaged
        ({}, 4, 4, 4, []),
        ({"ends": "x"}, 4, 8, 8, []),
        (None, 4, 8, 8, []),
    ],
)
def test_an_end_is_recorded_once_the_run_goes_beyond_it(
    record: Any, step: int, then: int, now: int, ends: list[int]
) -> None:
    assert former_ends(record, checkpoint(step, then), now) == ends


def test_a_run_is_repeated_in_the_pieces_in_which_it_was_trained() -> None:
    record = {"config": {"max_steps": 12}, "ends": [4, 8]}
    assert training_ends({"config": {"max_steps": 12}}, 12) == [12]
    assert training_ends({"config": {"max_steps": 0}}, 0) == [0]
    assert [training_ends(record, step) for step in (3, 4, 5, 12)] == [[4], [4], [4, 8], [4, 8, 12]]
    for ends in ([8, 4], [12], [-1], ["4"], [True]):
        with pytest.raises(ValueError, match="must be ascending steps"):
            training_ends(record | {"ends": ends}, 12)


@pytest.mark.parametrize(
    ("theirs", "faults"),
    [
        ([1, 2, 3], 0),
        ([1, 2, 9, 3], 0),  # `evaluate` before the run was given more steps
        ([1, 9, 2, 9, 3, 9], 0),
        ([1, 3], 1),
        ([1, 9, 3], 1),
        ([1, 3, 2], 1),
        ([], 1),
    ],
)
def test_evaluations_that_were_added_are_no_difference_wherever_they_are(
    theirs: list[float], faults: int, tmp_path: Path
) -> None:
    folders = tmp_path / "theirs", tmp_path / "ours"
    for folder, values in zip(folders, (theirs, [1, 2, 3]), strict=True):
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"config": {"max_steps": 8}, "config_hash": "a"}))
        lines = [json.dumps({"step": 4, "name": "fid", "value": value}) + "\n" for value in values]
        (folder / "evaluations.jsonl").write_text("".join(lines))
    assert len(Repetition(*folders, 8).faults()) == faults


def test_a_digest_with_other_numbers_than_the_lines_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "SMALLEST", 1)
    folders = tmp_path / "theirs", tmp_path / "ours"
    for folder in folders:
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"config": {"max_steps": 8}, "config_hash": "a"}))
        (folder / "metrics.jsonl").write_text('{"step": 8, "train/loss": 1.0}\n')
    digest.read_columns(folders[0], folders[0], finished=True)
    assert Repetition(*folders, 8).faults() == []
    path = folders[0] / "metrics.digest"
    path.write_bytes(path.read_bytes().replace(struct.pack("d", 1.0), struct.pack("d", 0.5)))
    assert digest.read_columns(folders[0], folders[0], finished=True)["train/loss"].values[-1] == 0.5
    assert [fault.partition(":")[0] for fault in Repetition(*folders, 8).faults()] == ["metrics.digest"]


def test_what_is_said_in_a_temporary_folder_sends_nobody_there(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "step-00000008.png").write_bytes(b"")
    (tmp_path / "run.json").write_text(json.dumps({"config": {"max_steps": 8}}))
    (tmp_path / "result.json").write_text(json.dumps({"status": "done", "step": 8}))
    run = read_run(tmp_path)
    assert any(str(tmp_path) in line for line in outcome(run))
    with temporary(tmp_path):
        assert outcome(run) == ["done: step 8"] and from_here(tmp_path) == "a temporary folder"


def test_an_error_of_a_repetition_names_the_folder_and_the_command_that_were_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from diffusion_lab.cli.app import App

    again, app = tmp_path / "again", App("train", [], typed=[])
    advice = f"if so, repeat it: diffusion-lab train resume={again} dataset.source.root=x"
    assert _report(app, ConfigError(f"resume={again}: {again}/run.json asks for it; {advice}"), again, Path("my")) == 2
    assert capsys.readouterr().err == (
        "config error: run=my: my/run.json asks for it; "
        "if so, repeat it: diffusion-lab verify my dataset.source.root=x\n"
    )
