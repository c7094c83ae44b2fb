"""Progress of long work: bars on a terminal, lines in a log file.

    with progress("sampling", 1000, "images") as task:
        for batch in batches:
            ...
            task.advance(len(batch))

On a terminal the work has a bar on standard error while it lasts, below the bar of the work that it is a part of.
Elsewhere it prints a line at most every `LINE_EVERY` seconds, and none if it is done before:

    sampling 400/1000 images  time 31 s  eta 46 s

Work that cannot be counted is named by `waiting`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from diffusion_lab.printable import escaped_output, make_console, one_line, unescaped

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

LINE_EVERY = 15.0  # seconds
NAMED_AFTER = 1.0  # seconds until a wait has its line, where there is no terminal
PER_SECOND = 4  # how often bars are drawn


class ProgressTask:
    """Work that shows nothing; the base of those that show something."""

    done = 0

    def advance(self, count: int = 1) -> None:
        """`count` more are done."""
        self.at(self.done + count)

    def skip(self, count: int = 1) -> None:
        """`count` more were done before, which do not count for the speed."""
        self.advance(count)

    def at(self, done: int, note: str = "", rest: float | None = None) -> None:
        """`done` are done; `note` is shown beside it, and `rest` in place of the seconds that its speed suggests."""
        self.done = done


@contextmanager
def progress(name: str, total: int, unit: str = "", done: int = 0, show: bool = True) -> Iterator[ProgressTask]:
    """Show the progress of `total` things of which `done` are done already.

    Args:
        name: what is being done, e.g. "sampling".
        total: number of things.
        unit: what they are, in the plural; "" for none.
        done: how many were done before.
        show: False shows nothing, for processes of other ranks and for work that is too short.
    """
    if not show:
        yield ProgressTask()
    elif sys.stderr.isatty():
        with _bars() as bars:
            task = BarTask(bars, name, total, unit, done)
            try:
                yield task
            finally:
                bars.remove_task(task.number)
    else:
        task = LineTask(name, total, unit, done)
        with waiting(f"{task.name} {done}/{total}{task.unit}"):
            yield task


class BarTask(ProgressTask):
    """A bar among those that are shown."""

    def __init__(self, bars: Bars, name: str, total: int, unit: str, done: int) -> None:
        self.bars, self.done = bars, done
        of_what = f" {unit}" if unit else ""
        self.number = bars.add_task(name, total=total, completed=done, unit=of_what, note="", end=None)

    def at(self, done: int, note: str = "", rest: float | None = None) -> None:
        self.done = done
        end = None if rest is None else time.monotonic() + rest
        self.bars.update(self.number, completed=done, note=note, end=end)


class LineTask(ProgressTask):
    """A line now and then."""

    def __init__(self, name: str, total: int, unit: str, done: int) -> None:
        self.name, self.total, self.unit, self.done, self.first = name, total, f" {unit}" if unit else "", done, done
        self.start = self.last = time.monotonic()

    def skip(self, count: int = 1) -> None:
        self.done, self.first = self.done + count, self.first + count

    def at(self, done: int, note: str = "", rest: float | None = None) -> None:
        self.done = done
        now = time.monotonic()
        if now - self.last < LINE_EVERY or done <= self.first:
            return
        self.last = now
        if rest is None:
            rest = (now - self.start) / (done - self.first) * (self.total - done)
        words = [f"{self.name} {done}/{self.total}{self.unit}", f"time {duration(now - self.start)}", note]
        print("  ".join(filter(None, [*words, f"eta {duration(rest)}"])), flush=True)


def status(text: str) -> None:
    """Say on a terminal what is going on, until something is printed in its place; nothing elsewhere. "" removes it.

    The cursor stays at the beginning of the line. A text that the next line might not cover must be removed before.
    """
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        shown = one_line(text)[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        unescaped(sys.stderr).write(f"\r\x1b[2K{shown}\r")
        sys.stderr.flush()
        atexit.unregister(_clear)
        atexit.register(_clear)


class _Wait:
    """A wait that lasts, and the threads that name it where there is no terminal."""

    def __init__(self, text: str) -> None:
        self.text, self.over, self.named = text, threading.Event(), False
        self._watches: list[threading.Thread] = []

    def watch(self) -> None:
        """Name it if it lasts `NAMED_AFTER` seconds from now."""
        self._watches.append(threading.Thread(target=self._name, daemon=True))
        self._watches[-1].start()

    def _name(self) -> None:
        if not self.over.wait(NAMED_AFTER):
            self.named = True
            print(self.text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """It is over: nothing is printed any more, and no thread is there when jobs are forked."""
        self.over.set()
        for watch in self._watches:
            watch.join()


_waits: list[_Wait] = []  # those that last, the innermost last


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say what is waited for: on a terminal at once and until it is over, as `status`; elsewhere in a line on standard
    error if it takes longer than `NAMED_AFTER` seconds. What is inside should print nothing. After a wait inside
    another that was named, the outer one is named again, elsewhere than on a terminal if it lasts as long once more."""
    wait, on_terminal = _Wait(text), sys.stderr.isatty()
    status(text)
    _waits.append(wait)
    if not on_terminal:
        wait.watch()
    try:
        yield
    finally:
        wait.end()
        if wait in _waits:  # not if it was left open, and is collected after others have been forgotten
            _waits.remove(wait)
        status(_waits[-1].text if _waits else "")
        if wait.named and _waits and not on_terminal:
            _waits[-1].watch()


def _clear() -> None:
    unescaped(sys.stderr).write("\x1b[2K")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """2.3 s, 41 s, 12 min 05 s, 3 h 20 min, 3.5 days; "?" if it is not known."""
    if seconds == float("inf"):
        return "?"
    if 0.05 <= seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    if hours >= 48:
        return f"{seconds / 86400:.1f} days"
    return f"{hours} h {m:02d} min" if hours else f"{m} min {s:02d} s" if m else f"{s} s"


_shown: Bars | None = None  # one display for all work of this process, from the first bar to the last


@contextmanager
def _bars() -> Iterator[Bars]:
    """The bars that are shown, or new ones."""
    global _shown
    if _shown is not None:
        yield _shown
        return
    with _new_bars() as _shown, escaped_output():  # again, because rich has replaced the streams
        try:
            yield _shown
        finally:
            _shown = None


def _new_bars() -> Bars:
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Rest(ProgressColumn):
        """The time that the work still takes."""

        def render(self, task: Any) -> Text:
            end = task.fields["end"]
            rest = task.time_remaining if end is None else max(end - time.monotonic(), 0.0)
            return Text("" if rest is None else f"eta {duration(rest)}")

    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:.0f}/{task.total:.0f}{task.fields[unit]}", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        Rest(),
        console=make_console(stderr=True),
        transient=True,
        expand=True,
        refresh_per_second=PER_SECOND,
        redirect_stdout=sys.stdout.isatty(),  # lines then appear above the bars; a file gets them as they are
    )
