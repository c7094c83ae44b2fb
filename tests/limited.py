"""A time limit for a call that must not hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WAITS = 60.0  # seconds, of a machine with much else to do


class TookTooLong(BaseException):
    """Not an Exception, which the code under test could report as one of its own."""


@contextmanager
def limited(seconds: float = 5.0) -> Iterator[None]:
    """Raise `TookTooLong` in the main thread after so many seconds of computing, or `WAITS` in all, also in a system
    call that waits."""

    def stop(number: int, frame: FrameType | None) -> Any:
        raise TookTooLong(f"more than {seconds} s")

    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, max(WAITS, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
