"""Reading the runs of a folder again, while they are written, without what has not changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import DIGEST, FILES
from diffusion_lab.runs.run import Run

Stamp = tuple[object, ...]


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
