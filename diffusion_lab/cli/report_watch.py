"""`diffusion-lab report --watch`: the report again whenever a run or an analysis in the folder has changed, of which
only what has changed is read again."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.printable import make_console, one_line
from diffusion_lab.progress import status
from diffusion_lab.runs.find import read_run, read_runs
from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import DIGEST, FILES
from diffusion_lab.runs.run import Run, RunFolder, status_words

if TYPE_CHECKING:
    from diffusion_lab.reports import Report

Stamp = tuple[object, ...]


def watch(
    folder: str | Path, every: float, make: Callable[[RunFolder], tuple[Report, Any]], show: Callable[..., None]
) -> int:
    """Report the runs at first and whenever one of them, or an analysis, has changed, until Ctrl-C; returns 130.

    On a terminal each report takes the place of the last one. Elsewhere the first one is followed by a line for each of
    its tables, at first and at each change.

    Args:
        folder: with the runs.
        every: seconds between two checks.
        make: makes the report of the runs and writes its files.
        show: prints what `make` returns.

    Raises:
        FileNotFoundError, ValueError: as `read_runs` and `make`.
    """
    from diffusion_lab.reports.pages.html import analysed

    read, shown = Remembered(), None
    try:
        while True:
            runs = read_runs(folder, read)
            found = runs, analysed(runs)
            if shown is None or _changed(shown[0], runs) or shown[1] != found[1]:
                made = make(runs)
                if sys.stdout.isatty():
                    make_console().clear()
                    show(*made)
                    print(f"as of {_now()}; checks for changes every {every:g} s, until Ctrl-C", flush=True)
                else:
                    if shown is None:
                        show(*made)
                    print("\n".join(_lines(made[0])), flush=True)
            shown = found
            time.sleep(every)
    except KeyboardInterrupt:
        status("")
        print("stopped by signal 2", file=sys.stderr)
        return 128 + 2


def _changed(then: RunFolder, now: RunFolder) -> bool:
    """Whether a run is another one, as one is that was read again."""
    same = len(then.runs) == len(now.runs) and all(map(operator.is_, then.runs, now.runs))
    return not same or (then.sweeps, then.questions) != (now.sweeps, now.questions)


def _lines(report: Report) -> list[str]:
    """The time, how many runs there are, and the answer of each table."""
    answers = [f"{part.section.title}: {part.table.answer}" for part in report.parts]
    answers = [part.table.answer for part in report.parts] if len(answers) == 1 else answers
    return [one_line(f"{_now()}  {status_words(report.folder.runs)}  {answer}".rstrip()) for answer in answers or [""]]


def _now() -> str:
    return datetime.now().strftime("%H:%M:%S")


class Remembered:
    """`read_run` that returns the run of the last time, with all that was read of it, where its files are unchanged.

    A file is unchanged if its number, size and time are, and a run if it is also held by a process as before. The files
    are those that a run writes, without the digest, which reading a run writes. They are compared before they are read,
    so what is written meanwhile is read the next time.
    """

    def __init__(self) -> None:
        self._runs: dict[Path, tuple[Stamp, Run]] = {}

    def __call__(self, folder: Path, overrides: Sequence[str] | None = None, top: Path | None = None) -> Run:
        stamp = (*_stamps(folder), is_locked(folder, top or folder), tuple(overrides or ()))
        then, run = self._runs.get(folder, ((), None))
        if run is None or then != stamp:
            run = read_run(folder, None if overrides is None else list(overrides), top)
            self._runs[folder] = (stamp, run)
        return run


def _stamps(folder: Path) -> Iterator[tuple[object, ...]]:
    """Path, number, size and time of each file."""
    for pattern in FILES:
        for path in sorted(folder.glob(pattern)) if pattern != DIGEST else ():
            with suppress(OSError):  # it is gone
                found = path.stat()
                yield path, found.st_ino, found.st_size, found.st_mtime_ns
