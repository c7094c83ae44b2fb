"""The lock of a run folder, what is removed from it, and what it costs to import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from diffusion_lab.runs.folder import RunLocked, forget_run, forget_sweep, is_locked, lock, open_log, put_aside

LIGHT = "import sys, diffusion_lab.runs.folder, diffusion_lab.runs.record; assert 'numpy' not in sys.modules"
NO_TORCH = "import diffusion_lab.runs.find; assert 'numpy' in sys.modules and 'torch' not in sys.modules"


def test_one_process_trains_in_a_folder(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    assert not is_locked(run)
    with lock(run):
        assert is_locked(run)
        with pytest.raises(RunLocked, match="another process is training in .*/run"), lock(run):
            pass
    assert not is_locked(run)
    with lock(run):
        pass


def test_a_folder_without_a_run_is_removed_and_a_run_is_not(tmp_path: Path) -> None:
    for name in ("empty", "begun", "ended"):
        with lock(tmp_path / "runs" / name), open_log(tmp_path / "runs" / name) as log:
            log.write("words")
        (tmp_path / "runs" / name / ".hydra").mkdir()
    (tmp_path / "runs" / "begun" / "run.json").write_text("{}")
    (tmp_path / "runs" / "ended" / "result.json").write_text("{}")
    for name in ("empty", "begun", "ended", "none"):
        forget_run(tmp_path / "runs" / name, tmp_path / "runs")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["begun", "ended"]
    assert (tmp_path / "runs" / "begun" / "train.log").read_text() == "words"


def test_a_sweep_that_started_no_job_is_removed(tmp_path: Path) -> None:
    for name in ("none", "some"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "multirun.yaml").touch()
    (tmp_path / "some" / "sweep.json").touch()
    for name in ("none", "some", "nowhere"):
        forget_sweep(tmp_path / name, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["some"]
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["multirun.yaml", "sweep.json"]


@pytest.mark.parametrize("words", [["batch_size=-1"], ["dry_run=true"]])
def test_a_command_that_trains_nothing_removes_nothing_that_was_there(words: list[str], in_folder: Path) -> None:
    """It took the .hydra and train.log of another program for its own, and an empty working folder."""
    old = in_folder / "old"
    (old / ".hydra").mkdir(parents=True)
    (old / "train.log").write_text("mine")
    (old / ".hydra" / "config.yaml").write_text("mine")
    (in_folder / "log").mkdir()
    (in_folder / "log" / "train.log").write_text("mine")
    (in_folder / "here").mkdir()
    os.chdir(in_folder / "here")
    small = ["network=unet_tiny", "max_steps=2", "metrics=none", *words]
    for place in (str(old), str(in_folder / "log"), "run", "."):
        main(["train", *small, f"hydra.run.dir={place}"])
    assert sorted(path.name for path in old.rglob("*")) == [".hydra", "config.yaml", "train.log"]
    assert (old / "train.log").read_text() == (in_folder / "log" / "train.log").read_text() == "mine"
    assert [path.name for path in Path.cwd().iterdir()] == []
    main(["train", *small])  # the folder of runs is its own
    assert [path.name for path in Path.cwd().iterdir()] == []


def test_what_a_run_left_is_moved_aside_each_time(tmp_path: Path) -> None:
    assert put_aside(tmp_path) is None
    for number in (1, 2):
        (tmp_path / "metrics.jsonl").write_text(f"{number}")
        (tmp_path / "train.log").touch()
        assert put_aside(tmp_path) == tmp_path / f"before-{number}"
        assert (tmp_path / f"before-{number}" / "metrics.jsonl").read_text() == f"{number}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before-1", "before-2", "train.log"]


def test_reading_runs_imports_no_torch_and_their_names_no_numpy() -> None:
    subprocess.run([sys.executable, "-c", f"{LIGHT}; {NO_TORCH}"], check=True)
