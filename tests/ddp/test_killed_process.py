"""SIGKILL to one of the two processes that `trainer=ddp_cpu` starts: the other ends too, what was saved is good, and
the same command goes on to the end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from diffusion_lab.training.checkpoint_io import load
from tests.harness import Child, command_child

pytestmark = pytest.mark.slow
COMMAND = [
    *("train", "trainer=ddp_cpu", "scale=smoke", "max_steps=40"),
    *("checkpoint_every=5", "snapshot_every=0", "network.base_channels=8", "hydra.run.dir=run"),
]
LIMIT_S = 60.0  # the promise


def started_by(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits for its parent to ask does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_checkpoint(process: Child, folder: Path) -> None:
    end = time.monotonic() + 2 * LIMIT_S
    while not (folder / "run" / "checkpoints" / "previous.ckpt").exists():
        assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.005)


@pytest.mark.parametrize("killed", [pytest.param("first", marks=pytest.mark.exhaustive), "second"])
def test_the_other_process_ends_and_the_checkpoint_is_good(killed: str, tmp_path: Path) -> None:
    first = command_child(COMMAND, tmp_path)
    wait_for_checkpoint(first, tmp_path)
    (second,) = started_by(first.pid)
    os.kill(first.pid if killed == "first" else second, signal.SIGKILL)
    begin = time.monotonic()
    assert first.wait(LIMIT_S) != 0
    while alive(second):
        assert time.monotonic() - begin < LIMIT_S
        time.sleep(0.05)
    saved = load(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"]
    assert 5 <= saved < 40 and saved % 5 == 0
    if killed == "second":
        command_child(COMMAND, tmp_path).succeed(2 * LIMIT_S)
        assert f"run from step {saved} (last.ckpt)" in (tmp_path / "log").read_text()
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert (result["status"], result["step"]) == ("done", 40)
