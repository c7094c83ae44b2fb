"""Loops that take turns in one process, and the time of each turn.

Each loop has its own thread, and only one of them runs at any time: after `steps` steps it waits for the others. A loop
of another library, such as Lightning's, only has to call `baton` after every step. A turn is measured in CPU seconds of
the loop's thread, for the reason in `paired.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from threading import Semaphore, Thread

Loop = Callable[[Callable[[], None], int], object]


class Baton:
    """Called by a loop after every step; returns when the loop may continue."""

    def __init__(self, steps: int, turns: int) -> None:
        self.steps, self.turns = steps, turns
        self.mine, self.over = Semaphore(0), Semaphore(0)
        self.seconds: list[float] = []
        self.error: BaseException | None = None
        self._step = 0

    def __call__(self) -> None:
        if self._step % self.steps == 0:
            if self._step:
                self.seconds.append(time.thread_time() - self._start)
            self.over.release()
            self.mine.acquire()
            self._start = time.thread_time()
        self._step += 1

    def run(self, loop: Loop) -> None:
        """The thread."""
        self.mine.acquire()
        try:
            loop(self, self.steps * self.turns + 1)
        except BaseException as error:
            self.error = error
        self.over.release()


def relay(loops: Mapping[str, Loop], steps: int, rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """CPU seconds per step: name -> one number per round.

    Args:
        loops: name -> called with `baton` and the number of steps, one more than are measured: what happens before the
            first call of `baton`, set-up and the first step, is not part of any turn.
        steps: steps of a turn.
        rounds: measured turns of each loop.
        warmup: turns of each loop before them, which are not measured.
    """
    batons = {name: Baton(steps, warmup + rounds) for name in loops}
    for name, loop in loops.items():
        Thread(target=batons[name].run, args=(loop,), daemon=True).start()
    for _ in range(1 + warmup + rounds):  # the first turn is the set-up
        for baton in batons.values():
            baton.mine.release()
            baton.over.acquire()
            if baton.error is not None:
                raise baton.error
    for baton in batons.values():  # to the end, so that each loop cleans up
        baton.mine.release()
        baton.over.acquire()
        if baton.error is not None:
            raise baton.error
    return {name: [value / steps for value in baton.seconds[warmup:]] for name, baton in batons.items()}


def profiled(loop: Loop, start: Callable[[], object], stop: Callable[[], object], first: int = 1) -> Loop:
    """The loop with `start` before and `stop` after each step except the `first` ones, excluding the wait for its turn.
    Both are called in the loop's thread."""

    def run(baton: Callable[[], None], steps: int) -> None:
        made = count(1)

        def handed() -> None:
            step = next(made)
            if step > first:
                stop()
            baton()
            if first <= step < steps:
                start()

        loop(handed, steps)

    return run
