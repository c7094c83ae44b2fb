"""A loop of `relay` whose steps are profiled, without the waiting for its turn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from benchmarks.relay import Loop


def watched(loop: Loop, start: Callable[[], object], stop: Callable[[], object], first: int = 1) -> Loop:
    """The loop with `start` before and `stop` after each step but the `first` ones; both are called in its thread."""

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
