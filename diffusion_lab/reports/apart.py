"""A report of many runs that one of them must not end: a run that cannot be reported is set apart with a sentence.

What is known to be wrong in a file is found when it is read (`runs.record`). Anybody can write a file that is wrong in
another way, so what fails is tried again with half of the runs, until the one is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from diffusion_lab.runs.run import Run, RunFolder

T = TypeVar("T")
SHOWN = 120  # characters of an error


def apart(folder: RunFolder, make: Callable[[RunFolder], T], trial: Callable[[RunFolder], object]) -> T:
    """`make(folder)`; if it raises, `make` of the folder in which the runs that cannot be reported are damaged.

    Args:
        folder: the runs.
        make: makes the report.
        trial: makes one of some of the runs, without the user's options.

    Raises:
        Exception: that of `make`, if each run can be reported alone: the options are wrong.
    """
    try:
        return make(folder)
    except Exception:
        bad = dict(_bad(folder, folder.runs, trial))
        if not bad:
            raise
    return make(replace(folder, runs=tuple(bad.get(run.folder, run) for run in folder.runs)))


def _bad(folder: RunFolder, runs: Sequence[Run], trial: Callable[[RunFolder], object]) -> Iterator[tuple[Path, Run]]:
    """Folder of each run that cannot be reported, by halves, and a run in its place whose fault is why."""
    try:
        trial(replace(folder, runs=tuple(runs), sweeps={}))
        return
    except Exception as error:
        if len(runs) > 1:
            half = len(runs) // 2
            yield from (*_bad(folder, runs[:half], trial), *_bad(folder, runs[half:], trial))
            return
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:SHOWN]}"
    run = runs[0]
    fault = f"its files cannot be reported ({reason})"
    yield run.folder, Run(run.folder, "damaged", run.overrides, faults=(fault,), top=run.top)
