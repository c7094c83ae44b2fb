"""A process that hangs: all of them end after the time that was set, the message names it, and the checkpoint is good;
`test_killed_process` goes on from one."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from diffusion_lab.callbacks.heartbeat import _Listening
from diffusion_lab.training.checkpoint_io import load
from tests.ddp.test_killed_process import LIMIT_S, alive, started_by, wait_for_checkpoint
from tests.harness import Child, command_child

SECONDS = 6
COMMAND = [
    *("train", "trainer=ddp_cpu", "scale=smoke", "max_steps=400"),
    *("checkpoint_every=5", "snapshot_every=0", "network.base_channels=8", "hydra.run.dir=run"),
    f"hang_timeout_min={SECONDS / 60}",
]


def start(folder: Path, *more: str) -> Child:
    return command_child([*COMMAND, *more], folder)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [pytest.param("first", marks=pytest.mark.exhaustive), "second"])
def test_a_stopped_process_ends_the_run(stopped: str, tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for_checkpoint(first, tmp_path)
    (second,) = started_by(first.pid)
    silent = first.pid if stopped == "first" else second
    os.kill(silent, signal.SIGSTOP)
    begin = time.monotonic()
    code = first.wait(LIMIT_S)
    while alive(second):
        assert time.monotonic() - begin < LIMIT_S
        time.sleep(0.05)
    assert time.monotonic() - begin > SECONDS / 2
    assert code == (1 if stopped == "second" else -signal.SIGKILL)
    log = (tmp_path / "log").read_text()
    number = 0 if stopped == "first" else 1
    assert f"rank {number} (process {silent} on " in log and "gave no sign of life for 6 s" in log
    assert "Traceback" not in log
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "failed" and result["error"]["type"] == "SilentProcess"
    assert load(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] % 5 == 0


@pytest.mark.slow
@pytest.mark.exhaustive  # the pause of one process is tested below, without waiting for it
def test_a_pause_of_all_is_no_fault(tmp_path: Path) -> None:
    """Ctrl-Z for longer than the time that is set, and on."""
    first = start(tmp_path, "max_steps=60")
    wait_for_checkpoint(first, tmp_path)
    (second,) = started_by(first.pid)
    for pid in (first.pid, second):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SECONDS + 1)
    for pid in (second, first.pid):
        os.kill(pid, signal.SIGCONT)
    assert first.wait(2 * LIMIT_S) == 0, (tmp_path / "log").read_text()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> tuple[_Listening, Clock]:
    """Of rank 0 of three, with a timeout of 12 s."""
    import threading

    from diffusion_lab.callbacks import heartbeat

    clock = Clock()
    monkeypatch.setattr(heartbeat, "time", clock)
    return _Listening([("a", 1), ("a", 2), ("b", 3)], 12.0, threading.Event()), clock


class Store:
    """What the others said."""

    def __init__(self) -> None:
        self.said: dict[str, bytes] = {}

    def check(self, keys: list[str]) -> bool:
        return keys[0] in self.said

    def get(self, key: str) -> bytes:
        return self.said[key]


def hear(listening: _Listening, clock: Clock, now: float, **said: str) -> list[int]:
    clock.now = now
    store = Store()
    store.said = {f"heartbeat/{key[1:]}": value.encode() for key, value in said.items()}
    listening._listen(store)
    listening._talked = now
    return listening.silent()


def test_silent_is_who_says_nothing_new(listening: tuple[_Listening, Clock]) -> None:
    for now in range(2, 13, 2):
        assert hear(*listening, now, r1=f"{now}", r2="1") == []
    assert hear(*listening, 14, r1="14", r2="1") == []  # heard at 2
    assert hear(*listening, 16, r1="16", r2="1") == [2]


def test_who_has_left_is_not_silent(listening: tuple[_Listening, Clock]) -> None:
    for now in range(2, 41, 2):
        assert hear(*listening, now, r1=f"{now}", r2="left") == []


def test_after_a_pause_of_its_own_it_listens_anew(listening: tuple[_Listening, Clock]) -> None:
    assert hear(*listening, 2, r1="1", r2="1") == []
    assert hear(*listening, 500, r1="1", r2="1") == []
    assert hear(*listening, 505, r1="1", r2="2") == []
    for now in (508, 511):
        assert hear(*listening, now, r1="1", r2=f"{now}") == []
    assert hear(*listening, 513, r1="1", r2="513") == [1]
