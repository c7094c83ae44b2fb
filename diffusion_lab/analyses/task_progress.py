"""Progress of a computation: a bar on a terminal, lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Step = Callable[[bool], object]  # called after each task; True: computed now, False: finished before
Progress = Callable[[str, int], AbstractContextManager[Step]]
LINE_EVERY = 15.0  # seconds


@contextmanager
def silent(name: str, total: int) -> Iterator[Step]:
    """Shows nothing."""
    yield lambda computed: None


@contextmanager
def shown(name: str, total: int) -> Iterator[Step]:
    """Progress of `total` tasks, as a bar on standard error if it is a terminal, else as lines on standard output."""
    with _bar(name, total) if sys.stderr.isatty() else _lines(name, total) as step:
        yield step


@contextmanager
def _bar(name: str, total: int) -> Iterator[Step]:
    from tqdm import tqdm

    with tqdm(total=total, desc=name) as bar:
        yield lambda computed: bar.update()


@contextmanager
def _lines(name: str, total: int) -> Iterator[Step]:
    """`losses 12/64  time 31s  eta 2m`, at most every `LINE_EVERY` seconds, and at the end."""
    start = last = time.monotonic()
    done = computed_here = 0

    def step(computed: bool) -> None:
        nonlocal done, computed_here, last
        done, computed_here = done + 1, computed_here + computed
        now = time.monotonic()
        if now - last < LINE_EVERY and done < total:
            return
        last = now
        rest = (now - start) / max(computed_here, 1) * (total - done)
        print(f"{name} {done}/{total}  time {now - start:.0f}s  eta {rest:.0f}s", flush=True)

    yield step
