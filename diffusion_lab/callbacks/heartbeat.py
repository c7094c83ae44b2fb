"""Heartbeats between the processes of a run, so that the others do not wait forever for one that hangs."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch._C._distributed_c10d import TCPStore

from diffusion_lab.arguments import WrittenPath, check_number
from diffusion_lab.callbacks.base import RunCallback
from diffusion_lab.callbacks.signals import processes
from diffusion_lab.distributed import is_distributed, rank
from diffusion_lab.failure import Failure
from diffusion_lab.runs.record import write_result

LONGEST_S = 5.0  # maximum time between two heartbeats
LEFT = "left"
REPORT_S = 1.0  # time for the reporting process to report the error
LEAVE_S = 3.0  # time for a process to announce that it leaves


class SilentProcess(Failure):
    """A process of the run sent no heartbeat for too long."""


class Heartbeat(RunCallback):
    """With several processes, a thread in each sends heartbeats to the others, over a connection of its own to the
    store of the process group. When one is silent for `timeout_min`, all processes end: those on its machine kill it,
    the first live one reports it and writes result.json, and the last checkpoint is kept.

    A process is silent if it was stopped or killed, or if its machine is down. A process that computes, or waits for a
    file or for others, is not: it is ended by the process group's own timeout, 30 minutes with gloo and 10 with NCCL.
    Heartbeats use neither the device nor collectives, so they are the same for gloo and NCCL.

    Args:
        directory: the run folder.
        timeout_min: minutes without a heartbeat, > 0.

    Raises:
        ValueError: `timeout_min` is not positive.
    """

    def __init__(self, directory: WrittenPath, timeout_min: float = 5.0) -> None:
        check_number("timeout_min", timeout_min, "()", 0, math.inf, "use 5 minutes")
        self.directory, self.timeout = Path(directory), 60.0 * timeout_min
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not is_distributed():
            return
        self._ended = threading.Event()
        listening = _Listening(processes(), self.timeout, self._ended)
        work = {"heartbeat": listening.talk, "heartbeat-judge": lambda: self._judge(listening, trainer)}
        self._threads = [threading.Thread(target=target, daemon=True, name=name) for name, target in work.items()]
        for thread in self._threads:
            thread.start()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._leave()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._leave()

    def _leave(self) -> None:
        """Stop the threads and wait for them: a thread inside a call of the store would abort Python at its exit."""
        self._ended.set()
        for thread in self._threads:
            thread.join(LEAVE_S)
        self._threads = []

    def _judge(self, listening: _Listening, trainer: Trainer) -> None:
        while not self._ended.wait(listening.period):
            silent = listening.silent()
            if silent:
                self._end(listening, silent, trainer.global_step)

    def _end(self, listening: _Listening, silent: list[int], step: int) -> None:
        """End this process and the silent ones on its machine; the first live process reports the error."""
        reports = min(r for r in range(len(listening.places)) if r not in silent) == rank()
        places = [(r, *listening.places[r]) for r in silent]
        names = ", ".join(f"{r} (process {pid} on {host})" for r, host, pid in places)
        error = SilentProcess(
            f"rank {names} gave no sign of life for {self.timeout:g} s (hang_timeout_min={self.timeout / 60:g}) after "
            f"step {step}, so all processes end; the same command goes on from the last checkpoint"
        )
        if reports:
            with suppress(Exception):
                print(f"failed: {error}", file=sys.stderr, flush=True)
                write_result(self.directory, "failed", step=step, exception=error)
        else:
            time.sleep(REPORT_S)
        for _, host, pid in places:
            if host == socket.gethostname():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        os._exit(1)  # the main thread waits for the silent process, where no exception can reach it


class _Listening:
    """The heartbeats that this process received from the others, and when."""

    def __init__(self, places: list[tuple[str, int]], timeout: float, ended: threading.Event) -> None:
        self.places, self.timeout, self._ended = places, timeout, ended
        self.period = min(LONGEST_S, timeout / 6)
        now = time.monotonic()
        self._heard = {r: now for r in range(len(places)) if r != rank()}
        self._said: dict[int, str] = {}
        self._talked = self._judged = now

    def silent(self) -> list[int]:
        """The ranks whose last heartbeat is too old."""
        now = time.monotonic()
        if now - self._judged > self.timeout / 2:  # this process itself was stopped, perhaps together with the others
            self._heard = dict.fromkeys(self._heard, now)
            self._talked = now
        self._judged = now
        if now - self._talked > self.timeout:  # the store belongs to rank 0
            return [0] if rank() else []
        return [r for r, when in self._heard.items() if now - when > self.timeout and self._said.get(r) != LEFT]

    def talk(self) -> None:
        """Until the end: send this process's heartbeat and receive those of the others."""
        store, beat = None, 0
        while True:
            ended, beat = self._ended.wait(self.period), beat + 1
            try:
                store = store or self._connect()
                store.set(f"heartbeat/{rank()}", LEFT if ended else str(beat))
                if ended:
                    return
                self._listen(store)
                self._talked = time.monotonic()
            except Exception:
                store = None
                if ended:
                    return

    def _listen(self, store: Any) -> None:
        for r in list(self._heard):
            key = f"heartbeat/{r}"
            said = store.get(key).decode() if store.check([key]) else ""
            if said != self._said.get(r, ""):
                self._said[r], self._heard[r] = said, time.monotonic()

    def _connect(self) -> TCPStore:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        wait = timedelta(seconds=max(1.0, self.timeout / 3))
        return TCPStore(*place, is_master=False, timeout=wait, wait_for_workers=False)
