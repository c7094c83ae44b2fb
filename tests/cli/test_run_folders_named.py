"""Every command that reads a run takes its folder as `run=DIR` and as a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.command_line import KEYED, PLACED, run_folders_named
from diffusion_lab.cli.help import COMMANDS
from diffusion_lab.cli.main import main


@pytest.fixture
def folders(in_folder: Path) -> Path:
    for name in ("a run", "runs/b"):
        Path(name).mkdir(parents=True)
    return in_folder


def test_every_command_that_reads_runs_is_of_one_kind() -> None:
    others = {"train", "plan", "race", "encode", "reproduce", "list", "doctor"}
    assert {*KEYED, *PLACED} == {*COMMANDS} - others, "name a command in KEYED, PLACED or the others of this test"


@pytest.mark.parametrize("command", KEYED)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["runs/b", "seed=1"], ["seed=1", "run=runs/b"]),
        (["seed=1", "a run"], ["seed=1", "run='a run'"]),
        (["runs/typed/wrongly"], ["run=runs/typed/wrongly"]),
        (["runs/b", "a run"], ["run=[runs/b,'a run']"]),
        (["--config-dir", "runs", "run=runs/b"], ["--config-dir", "runs", "run=runs/b"]),
        (["--config-dir", "runs", "solver=ddim"], ["--config-dir", "runs", "solver=ddim"]),
        (["--help"], ["--help"]),
    ],
)
def test_a_word_without_a_key_is_the_run(command: str, words: list[str], expected: list[str], folders: Path) -> None:
    assert run_folders_named(command, words) == expected


@pytest.mark.parametrize("command", PLACED)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run=runs/b", "sampler=uniform"], ["runs/b", "sampler=uniform"]),
        (["run='a run'"], ["a run"]),
        (["run=runs/b,a run"], ["runs/b", "a run"]),
        (["run=runs/b", "run=a run"], ["runs/b", "a run"]),
        (["runs/b"], ["runs/b"]),
        (["hydra.run.dir=x"], ["hydra.run.dir=x"]),
    ],
)
def test_run_is_the_word_of_the_others(command: str, words: list[str], expected: list[str], folders: Path) -> None:
    assert run_folders_named(command, words) == expected


@pytest.mark.parametrize("command", ["evaluate", "sample", "export", "show", "verify"])
@pytest.mark.parametrize("word", ["runs/b", "run=runs/b"])
def test_both_reach_the_run(command: str, word: str, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/b/run.json").write_text(json.dumps({"config": 5}))
    assert main([command, word]) == 2
    assert "run=runs/b must hold an undamaged run.json" in capsys.readouterr().err
