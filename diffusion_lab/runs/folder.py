"""A run folder as a whole: its lock, its log, and its removal if no run has started. A run's files are only moved."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from diffusion_lab.files_inside import open_inside, regular
from diffusion_lab.held_folder import hold
from diffusion_lab.runs.names import BEFORE, HYDRA, LOCK, LOG, MULTIRUN, RECORD, RESULT, SWEEP

OF_A_COPY = "; if there is a copy, `diffusion-lab train resume=COPY` goes on from its last checkpoint"


class RunLocked(RuntimeError):
    """Another process is training in this run folder. Exit code 3; a sweep goes on to its next job."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Allow one training process per run folder, which is made if needed; the lock is released when the process ends.

    The folder is held inside (`held_folder`).

    Raises:
        FolderMoved: the folder was moved or removed meanwhile.
        RunLocked: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab", opener=regular) as file:  # whatever it is, it is not emptied
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(f"another process is training in {folder}; wait for it or stop it first") from None
        os.set_inheritable(file.fileno(), False)
        with hold(folder, OF_A_COPY):
            yield


def is_locked(folder: Path, top: Path | None = None) -> bool:
    """Whether a process of this machine trains in the folder, which lies in `top`: tries a shared lock and releases it
    at once."""
    try:
        with open_inside(folder / LOCK, top) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def open_log(folder: Path) -> TextIO:
    """The run's log, to append to; the folder is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / LOG, "a", encoding="utf-8", errors="backslashreplace", opener=regular)


def is_new(folder: Path) -> bool:
    """Whether a run folder holds nothing but an empty log, as Hydra makes it before it calls the task."""
    try:
        held = os.listdir(folder)
    except FileNotFoundError:  # another process of the run has removed it
        return False
    return not held or (held == [LOG] and not os.path.getsize(folder / LOG))


def forget_run(folder: Path, root: Path) -> None:
    """Remove a run folder that was empty before this process and in which no run has started, that is, one without a
    record and a result; and `root`, the folder of runs, if it was the only one in it."""
    if not folder.is_dir() or (folder / RECORD).exists() or (folder / RESULT).exists():
        return
    shutil.rmtree(folder / HYDRA, ignore_errors=True)
    for name in (LOG, LOCK):
        with suppress(OSError):  # it is not there, or a folder lies in its place
            (folder / name).unlink()
    _remove_empty(folder, root)


def forget_sweep(folder: Path, root: Path) -> None:
    """Remove what Hydra's sweeper writes before the first job, for a sweep that started none; `root` as above."""
    with suppress(OSError):  # it may not be a folder; then the error being reported says so
        if (folder / SWEEP).exists():
            return
        (folder / MULTIRUN).unlink(missing_ok=True)
    _remove_empty(folder, root)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove the folder, and the one above it if that is `root`; never the working folder."""
    for empty in (folder, folder.parent):
        with suppress(OSError):  # it is not empty, or another process has removed it
            if (empty is folder or os.path.samefile(empty, root)) and not os.path.samefile(empty, os.curdir):
                empty.rmdir()


def put_aside(folder: Path) -> Path | None:
    """Move everything that a run left in its folder to a new subfolder and return it; None if there was nothing."""
    current = (LOCK, HYDRA, LOG)  # of the current attempt
    held = [path for path in folder.iterdir() if path.name not in current and not path.name.startswith(BEFORE)]
    if not held:
        return None
    number = 1
    while (place := folder / f"{BEFORE}{number}").exists():
        number += 1
    place.mkdir()
    for path in held:
        os.rename(path, place / path.name)
    return place
