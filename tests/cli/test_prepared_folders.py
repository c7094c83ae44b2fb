"""A folder that somebody has prepared for a run or a sweep is not written through, and `resume=` names one folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from diffusion_lab.cli import command_line
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.untrusted_run import resume_overrides
from diffusion_lab.runs.find import read_runs

SMALL = ("train", "scale=smoke", "metrics=none", "trainer.accelerator=cpu")


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text("secret")
    return tmp_path / "private"


def untouched(private: Path) -> bool:
    return [path.name for path in private.iterdir()] == ["secret"] and (private / "secret").read_text() == "secret"


@pytest.mark.parametrize("name", [".hydra", "samples", "averages", "checkpoints", "metrics.jsonl"])
def test_a_run_is_not_written_through_a_link_in_its_folder(
    name: str, private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run").mkdir()
    Path("run", name).symlink_to(private if "." not in name[1:] else private / "secret")
    assert main([*SMALL, "hydra.run.dir=run"]) == 2
    assert "must hold its own files" in capsys.readouterr().err and untouched(private)


@pytest.mark.parametrize("name", ["multirun.yaml", "sweep.json"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "FIFO"])
def test_a_sweep_is_not_written_through_what_lies_in_its_folder(
    name: str, kind: str, private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep").mkdir()
    if kind == "FIFO":
        os.mkfifo(Path("sweep", name))
    else:
        Path("sweep", name).symlink_to(private / ("secret" if kind == "link" else "new"))
    assert main([*SMALL, "-m", "seed=0,1", "hydra.sweep.dir=sweep"]) == 2
    assert "is no regular file; remove it" in capsys.readouterr().err and untouched(private)


@pytest.mark.parametrize("name", [r"a\b", r"a\\b", "a'b", r"a\'b", "a b", "a,b", "a$b", "{a}", "a\\"])
@pytest.mark.parametrize("word", ["resume", "+resume", "++resume"])
def test_the_folder_that_is_checked_is_the_one_that_goes_on(
    name: str, word: str, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(name).mkdir()
    record = {"config": {"seed": 0}, "overrides": ["seed=0"]}
    read = []
    monkeypatch.setattr(command_line, "read_record", lambda folder, _: read.append(folder) or record)
    words = command_line.resume_arguments([f"{word}={name}"])
    parsed = OverridesParser.create().parse_overrides([w for w in words if w.startswith(("resume=", "hydra.run.dir="))])
    values = [str(getattr(one.value(), "text", one.value())) for one in parsed]
    assert values == [str(read[0])] * 2 == [name] * 2


def test_a_folder_whose_name_is_a_reference_is_refused(private: Path) -> None:
    with pytest.raises(ConfigError, match="must be a folder whose name has no"):
        command_line.resume_arguments(["resume=${oc.env:HOME}"])


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
@pytest.mark.parametrize("command", ["report", "compare", "show", "dashboard"])
def test_a_name_that_no_folder_has_is_one_sentence(
    command: str, name: str, private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name, *(["private"] if command == "compare" else [])]) == 2
    said = capsys.readouterr().err
    assert said.startswith("config error: ") and "Traceback" not in said


@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "x" * 300])
def test_a_job_that_no_folder_can_have_does_not_end_a_report(name: str, private: Path) -> None:
    jobs = [{"dir": name, "overrides": []}, {"dir": "good", "overrides": ["seed=1"]}]
    Path("sweep.json").write_text(json.dumps({"commands": ["diffusion-lab train -m"], "jobs": jobs}))
    assert [run.name for run in read_runs(".").runs][-1] == "good"


@pytest.mark.parametrize("word", ["name=" + "[" * 200 + "]" * 200, "name=" + "x" * 200_000, "name=~nobody/x"])
def test_an_override_that_is_too_long_or_deep_is_refused(word: str, private: Path) -> None:
    with pytest.raises(ConfigError) as error:
        resume_overrides(private, [word], [])
    assert len(str(error.value)) < 1000


def test_the_command_that_is_recorded_does_not_resume(private: Path) -> None:
    assert resume_overrides(private, ["paths.root=r", "seed=1"], [], own=True) == ["paths.root=r", "seed=1"]
    assert resume_overrides(private, ["paths.root=r", "seed=1"], []) == ["seed=1"]
