"""Sweeps whose jobs Ray starts, on a Ray of this machine: a job ends as if it had been trained alone, also where the
sweep is stopped between, and one that fails does not end the others."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from hydra import compose

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.main import main
from hydra_plugins.diffusion_lab_launcher import ray_cluster
from hydra_plugins.diffusion_lab_launcher.ray_cluster import RayLauncher, check_room, gpus
from tests.harness import Child, differences, final_state, wait_for_step

JOB = [
    *("base=ddpm", "trainer=cpu", "scale=smoke", "network.base_channels=8", "network.channel_multipliers=[1]"),
    *("batch_size=8", "threads=1", "~callbacks.generation"),
    *("max_steps=1500", "checkpoint_every=100", "snapshot_every=0", "log_every=10"),
]
OURS = [
    *("hydra/launcher=diffusion_lab_ray", "hydra.launcher.cpus=1", "hydra.launcher.poll_s=0.2"),
    "+hydra.launcher.init.num_cpus=1",
]


def command(folder: Path, log: str, *arguments: str) -> Child:
    def work() -> None:
        os.chdir(folder)
        raise SystemExit(main(["train", *arguments]))

    return Child(work, folder / log)


def first_run(folder: Path, child: Child) -> Path:
    """The folder of the sweep's first job, which has trained some steps."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        for run in folder.glob("runs/two/digits-uniform-s*"):
            wait_for_step(child, run, 30, 240)
            return run
        time.sleep(0.1)
    raise TimeoutError((folder / "log").read_text())


@pytest.mark.slow
def test_a_stopped_sweep_ends_as_a_job_trained_alone(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    alone = command(tmp_path, "alone", *JOB, "optimizer.lr=0.001", f"hydra.run.dir={tmp_path}/by_itself")
    alone.succeed(240)
    sweep = ["-m", "optimizer.lr=0.001,1e30", "name=two", *JOB, *OURS]
    child = command(tmp_path, "log", *sweep)
    stopped = first_run(tmp_path, child)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(240) == 130
    assert json.loads((stopped / "result.json").read_text())["status"] == "interrupted"

    again = command(tmp_path, "again", *sweep)
    assert again.wait(240) == 1
    said = (tmp_path / "again").read_text()
    assert "done        optimizer.lr=0.001" in said and "failed      optimizer.lr=1e+30" in said
    assert "continuing" in (stopped / "train.log").read_text()
    assert differences(final_state(stopped), final_state(tmp_path / "by_itself")) == []
    assert len(json.loads((tmp_path / "runs" / "two" / "sweep.json").read_text())["jobs"]) == 2


def test_every_job_is_checked_before_the_first(
    in_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: True)
    assert main(["train", "-m", *OURS, "hydra.launcher.address=auto", "trainer=gpu", "batch_size=64,-3"]) == 2
    said = capfd.readouterr().err
    assert "job 1 (trainer=gpu batch_size=-3): batch_size=-3 must" in said and "GPU" not in said
    assert main(["train", "-m", *OURS, "hydra.launcher.address=auto", "trainer=gpu", "trainer.num_nodes=2"]) == 2
    assert "trainer.num_nodes=2 must be 1 with hydra/launcher=diffusion_lab_ray" in capfd.readouterr().err
    assert not (in_folder / "runs").exists()


def test_faults_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'diffusion-lab\[ray\]'"):
        RayLauncher()
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: True)
    with pytest.raises(ConfigError, match="cpus=0 must be an integer >= 1"):
        RayLauncher(cpus=0)
    assert RayLauncher(address="auto").cpus == 4 and RayLauncher().cpus <= len(os.sched_getaffinity(0))
    check_room([{"num_cpus": 2, "num_gpus": 0}], {"CPU": 2.0})
    with pytest.raises(ConfigError, match="cpus=4 must be at most 2, the CPUs of this Ray"):
        check_room([{"num_cpus": 4, "num_gpus": 0}], {"CPU": 2.0})
    with pytest.raises(ConfigError, match="devices=1 must be at most 0, the GPUs of this Ray"):
        check_room([{"num_cpus": 1, "num_gpus": 1}], {"CPU": 2.0})


@pytest.mark.parametrize(
    ("words", "number"), [("trainer=cpu", 0), ("trainer=gpu", 1), ("trainer=ddp trainer.devices=4", 4)]
)
def test_a_job_asks_for_the_gpus_of_its_devices(words: str, number: int) -> None:
    with initialized():
        assert gpus(compose("train", overrides=words.split()).trainer) == number
