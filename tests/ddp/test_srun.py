"""Two processes that srun would have started: they find each other by SLURM's variables, lock the folder once, stop
together at the signal that SLURM sends, and go on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child, differences, final_state, wait_for_step

pytestmark = pytest.mark.slow
COMMAND = [
    *("train", "trainer=ddp_cpu", "scale=smoke", "network.base_channels=8", "snapshot_every=0", "threads=1"),
    *("max_steps=40", "checkpoint_every=1000"),
]


def task(folder: Path, rank: int, job: int, tasks: int = 2) -> Child:
    """One of the processes of `srun --ntasks-per-node=2 diffusion-lab train ...`."""

    def work() -> None:
        variables = {"NTASKS": tasks, "NTASKS_PER_NODE": tasks, "PROCID": rank, "LOCALID": rank, "NODEID": 0}
        os.environ.update({f"SLURM_{name}": str(value) for name, value in variables.items()})
        os.environ.update(SLURM_JOB_ID=str(job), SLURM_NODELIST="127.0.0.1", SLURM_JOB_NAME="train", SLURM_NNODES="1")
        raise SystemExit(main([*COMMAND, f"hydra.run.dir={folder}/run"]))

    return Child(work, folder / f"log-{rank}")


def test_tasks_stop_at_the_signal_and_go_on(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for child in [task(straight, rank, 10_000 + os.getpid()) for rank in (0, 1)]:
        child.succeed(300)

    both = [task(stopped, rank, 10_001 + os.getpid()) for rank in (0, 1)]
    wait_for_step(both[0], stopped / "run", 10, 300)
    for child in both:
        os.kill(child.pid, signal.SIGUSR2)
    assert [child.wait(300) for child in both] == [128 + signal.SIGUSR2] * 2
    assert 10 <= final_state(stopped / "run")["step"] < 40
    assert not list((stopped / "run").glob("hpc_ckpt*")), "Lightning's own way to stop under SLURM"

    for child in [task(stopped, rank, 10_002 + os.getpid()) for rank in (0, 1)]:
        child.succeed(300)
    assert differences(final_state(straight / "run"), final_state(stopped / "run")) == []
    assert json.loads((stopped / "run" / "run.json").read_text())["world_size"] == 2


def test_another_number_of_tasks_is_one_sentence(tmp_path: Path) -> None:
    child = task(tmp_path, 0, 10_003, tasks=4)
    assert child.wait() == 2
    assert "trainer.devices=2 on trainer.num_nodes=1 must be as many processes as the 4 tasks" in child.log.read_text()
