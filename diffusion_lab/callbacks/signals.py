"""Signals that stop a run: at the next step boundary, or at once during an evaluation."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch

from diffusion_lab.distributed import gather_objects, is_distributed, rank, sum_
from diffusion_lab.failure import Interruption

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MOVED = -1  # in place of a signal: the run folder was moved
REASONS = (*SIGNALS, MOVED)


class Interrupted(Interruption):
    """A signal asked the run to stop; a checkpoint was written at the step boundary after it."""

    status = "interrupted"

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}; the checkpoint is written")
        self.number = number


class _Arriving:
    """A tensor that is being copied to the host asynchronously."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._copy = tensor.to("cpu", non_blocking=True)  # into pinned memory, from a GPU
        self._event = torch.cuda.Event() if tensor.device.type == "cuda" else None
        if self._event is not None:
            self._event.record()

    def read(self) -> list[int]:
        """Wait for the copy and return its numbers."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.tolist()


class Signals:
    """Stores a received signal, and agrees on it with the other processes of the run.

    Signals that are ignored at the start, such as SIGHUP under `nohup`, stay ignored.
    """

    def __init__(self) -> None:
        self.number = 0  # the signal that this process received, 0 for none
        self._handlers: dict[int, Any] = {}
        self._arriving: _Arriving | None = None  # for each of REASONS, how many processes had it at the previous step
        self._measuring: int | None = None  # the saved step, during an evaluation that may be stopped at once
        self._handed_on = False
        self._others: list[int] = []

    def listen(self) -> None:
        """Install the handlers. Must be called on all processes."""
        self.restore()
        self.number, self._arriving, self._handed_on = 0, None, False  # those of an earlier fit are over
        self._others = _others_here()
        if threading.current_thread() is threading.main_thread():
            wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._handlers = {number: signal.signal(number, self._remember) for number in wanted}

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def agreed(self, device: torch.device, moved: bool = False) -> int:
        """The signal if all processes must stop after this step, or `MOVED` if one of them found the run folder
        `moved`, else 0; with several processes it is one step late."""
        own = self.number or (MOVED if moved else 0)
        if not is_distributed():
            return own
        # In every step, because a cluster gives a minute or two, and a step of a large network may take many seconds.
        # The sum is read one step later, when it has reached the host, so that no process waits for its device.
        before = self._arriving.read() if self._arriving else [0] * len(REASONS)
        signals = torch.tensor([own == reason for reason in REASONS], dtype=torch.int32)
        self._arriving = _Arriving(sum_(signals.to(device, non_blocking=True)))  # a blocking copy waits for it
        return next((reason for reason, count in zip(REASONS, before, strict=True) if count), 0)

    @contextmanager
    def at_once(self, step: int) -> Iterator[None]:
        """Raise `Interrupted` at once on a signal inside the block, which must not change the saved state of `step`.

        The processes of this machine forward the signal to each other; other machines receive it from its sender, or
        end when these processes have ended.
        """
        self._measuring = step
        try:
            if self.number:
                self._stop()
            yield
            if self.number:  # an exception raised inside a destructor is lost
                self._stop()
        except Interrupted:
            raise
        except Exception as error:
            if self._handed_on:  # PyTorch's compiler reports what is raised in it as an error of its own
                raise Interrupted(self.number, step) from error
            raise
        finally:
            self._measuring = None

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if self._measuring is not None and not self._handed_on:
            self._stop()

    def _stop(self) -> None:
        assert self._measuring is not None
        if not self._handed_on:
            self._handed_on = True
            for pid in self._others:
                with suppress(OSError):
                    os.kill(pid, self.number)
        raise Interrupted(self.number, self._measuring)


def processes() -> list[tuple[str, int]]:
    """Host name and process id of each rank. Must be called on all of them."""
    return gather_objects((socket.gethostname(), os.getpid()))


def _others_here() -> list[int]:
    machine = socket.gethostname()
    return [pid for i, (host, pid) in enumerate(processes()) if host == machine and i != rank()]
