"""A report of many runs that one of them must not end: a run that cannot be reported is set apart with a sentence.

What is known to be wrong in a file is found when it is read (`runs.record`). Anybody can write a file that is wrong in
another way, so what fails is tried again with half of the runs, until the one is found. Its files are damaged if
reading them is what fails; any other error is a fault of this package, which must cope with all that can be read.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import traceback
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from diffusion_lab.runs.run import Run, RunFolder

T = TypeVar("T")
SHOWN = 120  # characters of an error
TRACEBACK = "DIFFUSION_LAB_TRACEBACK"
READING = (OSError, EOFError, UnicodeError, json.JSONDecodeError, struct.error, zipfile.BadZipFile, zlib.error)
MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def set_apart(folder: RunFolder, make: Callable[[RunFolder], T], trial: Callable[[RunFolder], object]) -> T:
    """`make(folder)`; if it raises, `make` of the folder in which the runs that cannot be reported are "damaged", or
    "unreported" by a fault of this package, whose traceback the environment variable `TRACEBACK` prints.

    Args:
        folder: the runs.
        make: makes the report.
        trial: makes one of some of the runs, without the user's options.

    Raises:
        MemoryError, OSError: the machine is why, e.g. its disk is full.
        Exception: that of `make`, if each run can be reported alone: the options are wrong.
    """
    try:
        return make(folder)
    except Exception as error:
        _raise_of_machine(error)
        bad = dict(_bad(folder, folder.runs, trial))
        if not bad:
            raise
    return make(replace(folder, runs=tuple(bad.get(run.folder, run) for run in folder.runs)))


def _bad(folder: RunFolder, runs: Sequence[Run], trial: Callable[[RunFolder], object]) -> Iterator[tuple[Path, Run]]:
    """Folder of each run that cannot be reported, by halves, and a run in its place whose fault is why."""
    try:
        trial(replace(folder, runs=tuple(runs), sweeps={}))
    except Exception as error:
        _raise_of_machine(error)
        if len(runs) > 1:
            half = len(runs) // 2
            bad = [*_bad(folder, runs[:half], trial), *_bad(folder, runs[half:], trial)]
            yield from bad or _between(folder, runs, trial, error)
        else:
            yield _marked(runs[0], error)


def _between(
    folder: RunFolder, runs: Sequence[Run], trial: Callable[[RunFolder], object], error: Exception
) -> Iterator[tuple[Path, Run]]:
    """The one of some runs that cannot be reported beside the others, although each can alone."""
    for run in runs if len(runs) > 2 else runs[::-1]:
        try:
            trial(replace(folder, runs=tuple(one for one in runs if one is not run), sweeps={}))
        except Exception as other:
            _raise_of_machine(other)
            continue
        yield _marked(run, error)
        return


def _marked(run: Run, error: Exception) -> tuple[Path, Run]:
    status, fault = _judged(error)
    return run.folder, Run(run.folder, status, run.overrides, faults=(fault,), top=run.top)


def _judged(error: Exception) -> tuple[str, str]:
    """The status of a run whose report fails with an error, and the sentence about it."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:SHOWN]}"
    if isinstance(error, READING):
        return "damaged", f"its files cannot be read ({reason})"
    printed = bool(os.environ.get(TRACEBACK))
    if printed:
        traceback.print_exception(error)
    how = "with the traceback" if printed else f"with the traceback that the same command prints after {TRACEBACK}=1"
    return "unreported", (
        f"its files can be read, and a report of it fails ({reason}), which is a fault of diffusion-lab and not of the "
        f"run; please report it {how}"
    )


def _raise_of_machine(error: Exception) -> None:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in MACHINE):
        raise error
