"""Reading the runs of a folder again, while they are written, without what has not changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import EVALUATIONS, LOCK, METRICS, RECORD, RESULT, SAMPLES, TIMING
from diffusion_lab.runs.run import Run

FILES = (RECORD, RESULT, METRICS, EVALUATIONS, TIMING, SAMPLES, LOCK)
Stamp = tuple[object, ...]


class Remembered:
    """`read_run` that returns the run of the last time, with all that was read of it, where its files are unchanged.

    A file is unchanged if its number, size and time are, and a run if it is also held by a process as before. Files are
    looked at before they are read, so what is written meanwhile is read the next time.
    """

    def __init__(self) -> None:
        self._runs: dict[Path, tuple[Stamp, Run]] = {}

    def __call__(self, folder: Path, overrides: Sequence[str] | None = None, top: Path | None = None) -> Run:
        stamp = (*(_stamp(folder / name) for name in FILES), is_locked(folder, top or folder), tuple(overrides or ()))
        then, run = self._runs.get(folder, ((), None))
        if run is None or then != stamp:
            run = read_run(folder, None if overrides is None else list(overrides), top)
            self._runs[folder] = (stamp, run)
        return run


def _stamp(path: Path) -> tuple[int, ...]:
    """() if there is no such file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
