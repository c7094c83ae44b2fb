"""A folder that somebody has prepared for a run or a sweep is not written through, and `resume=` names one folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from diffusion_lab.cli import command_line
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main

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
