"""A sweep of real training runs in which one diverges and one is killed, and the same command again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child, differences, final_state

TINY = [
    *("scale=smoke", "network.base_channels=8", "network.channel_multipliers=[1]", "batch_size=8", "threads=1"),
    *("snapshot_every=0", "~callbacks.generation"),
]
SWEEP = [
    *("train", "-m", "optimizer.lr=0.001,0.002,1e30", "name=three", "trainer.accelerator=cpu"),
    *(*TINY, "max_steps=16"),
]


def _command(folder: Path, name: str, *arguments: str) -> Child:
    def work() -> None:
        os.chdir(folder)
        raise SystemExit(main(list(arguments)))

    return Child(work, folder / name)


def _kill_the_job(launcher: Child, folder: Path) -> Path:
    """SIGKILL the second job once it has trained; returns its folder."""
    while True:
        assert launcher.poll() is None
        started = [path.parent.parent for path in folder.glob("runs/three/*/checkpoints/last.ckpt")]
        done = [path.parent for path in folder.glob("runs/three/*/result.json")]
        running = [path for path in started if path not in done]
        if done and running:
            (pid,) = map(int, Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split())
            os.kill(pid, signal.SIGKILL)
            return running[0]
        time.sleep(0.005)


@pytest.mark.slow
def test_three_jobs_of_which_one_diverges_and_one_is_killed(tmp_path: Path) -> None:
    launcher = _command(tmp_path, "first", *SWEEP)
    killed = _kill_the_job(launcher, tmp_path)
    assert launcher.wait() == 1
    runs = sorted((tmp_path / "runs" / "three").glob("digits-*"))
    assert len(runs) == 3
    results = {run: json.loads((run / "result.json").read_text()) for run in runs}
    failed = [run for run in runs if results[run]["status"] == "failed"]
    (diverged,) = [run for run in failed if results[run]["error"]["type"] == "NotFinite"]
    assert set(failed) == {diverged, killed}
    assert results[killed]["error"]["type"] == "killed"
    said = (tmp_path / "first").read_text()
    assert "2 of 3 jobs are not done" in said and all(run.name in said for run in failed)

    _command(tmp_path, "report", "report", "runs/three").succeed()
    report = (tmp_path / "report").read_text()
    assert "NotFinite" in report and "killed" in report

    before = {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    assert _command(tmp_path, "second", *SWEEP).wait() == 1  # what diverges diverges again
    again = [run for run in runs if (run / "result.json").stat().st_mtime_ns != before[run]]
    assert set(again) == set(failed)
    assert json.loads((killed / "result.json").read_text())["status"] == "done"
    assert "continuing" in (killed / "train.log").read_text()
    assert (tmp_path / "second").read_text().count("done before") == 1


@pytest.mark.slow
def test_a_sweep_of_two_processes_each(tmp_path: Path) -> None:
    """Lightning starts the second process of a job from `sys.argv`; each job's two must be of the same job."""
    arguments = ["train", "-m", "trainer=ddp_cpu", "seed=0,1", "name=two", *TINY]
    _command(tmp_path, "log", *arguments).succeed(240)
    runs = sorted((tmp_path / "runs" / "two").glob("digits-*"))
    assert [json.loads((run / "run.json").read_text())["seed"] for run in runs] == [0, 1]
    for run in runs:
        assert json.loads((run / "run.json").read_text())["world_size"] == 2
        assert json.loads((run / "result.json").read_text())["status"] == "done"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["two"]


@pytest.mark.slow
def test_a_job_of_a_sweep_is_to_the_bit_the_run_of_its_own_command(tmp_path: Path) -> None:
    tiny = ["trainer.accelerator=cpu", *TINY]
    _command(tmp_path, "log", "train", "-m", "seed=0,1", "name=two", "hydra.launcher.n_jobs=2", *tiny).succeed()
    first, second = sorted((tmp_path / "runs" / "two").glob("digits-*"))
    alone = [sys.executable, "-m", "diffusion_lab.cli.main", "train", "seed=1", *tiny, "paths.root=alone"]
    subprocess.run(alone, cwd=tmp_path, check=True, capture_output=True)
    run = tmp_path / "alone" / second.name
    assert differences(final_state(second), final_state(run)) == []
    assert differences(final_state(first), final_state(run)) != []
    results = [json.loads((folder / "result.json").read_text()) for folder in (first, second, run)]
    assert results[1]["metrics"] == results[2]["metrics"] != results[0]["metrics"]
