"""Finding the runs below a folder, and their status, while they are being written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import CHECKPOINTS, LOCK, LOG, METRICS, RECORD, RESULT, SWEEP, is_run
from diffusion_lab.runs.record import RECORD_KINDS, RESULT_KINDS, as_list, is_done, read_checked, read_sweep
from diffusion_lab.runs.run import Run, RunFolder


def read_runs(path: str | Path) -> RunFolder:
    """Read every run at or below a folder: sweeps in the order of their jobs, then single runs as they were started.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds no run.
    """
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"folder={path} must be an existing folder; give a run's or a sweep's, e.g. runs")
    runs: dict[Path, Run] = {}
    single: dict[Path, Run] = {}
    sweeps: dict[Path, tuple[str, ...]] = {}
    for folder in _folders(path):
        commands, jobs = read_sweep(folder)
        if commands:
            sweeps[folder] = tuple(commands)
        for job in jobs:
            place = _job_folder(folder, str(job["dir"]))
            runs.setdefault(place.resolve(), read_run(place, as_list(job.get("overrides"))))
        if is_run(folder):
            single[folder.resolve()] = read_run(folder)
    for place, run in sorted(single.items(), key=lambda item: str(item[1].info.get("started"))):
        runs.setdefault(place, run)
    if not runs:
        raise ValueError(
            f"folder={path} must hold runs, and no {RECORD}, {RESULT} or {SWEEP} lies in it or below; "
            "start some with `diffusion-lab train`"
        )
    return RunFolder(path, tuple(runs.values()), sweeps)


def read_run(folder: Path, overrides: list[str] | None = None) -> Run:
    """Read one run folder; `overrides` are used if run.json has none."""
    info, damaged = read_checked(folder / RECORD, RECORD_KINDS)
    result, more = read_checked(folder / RESULT, RESULT_KINDS)
    status, faults = _status(folder, result), tuple(damaged + more)
    status = "damaged" if faults and status != "running" else status
    typed = info.get("overrides") or overrides or []
    return Run(folder, status, tuple(map(str, typed)), info, result, faults)


def _folders(top: Path) -> Iterator[Path]:
    """`top` and the folders below it; not those inside a run, nor hidden ones."""
    for place, names, _ in os.walk(top):
        folder = Path(place)
        names[:] = [] if is_run(folder) else sorted(name for name in names if not name.startswith("."))
        yield folder


def _job_folder(sweep: Path, name: str) -> Path:
    """The job's folder; if the sweep folder was moved, the subfolder of the same name."""
    place = sweep / name
    return place if place.is_dir() else sweep / Path(name).name


def _status(folder: Path, result: dict[str, Any]) -> str:
    if is_done(result):
        return "done"
    if is_locked(folder):  # checked before the result, which may be that of an earlier attempt
        return "running"
    if result:
        return "interrupted" if result.get("status") == "interrupted" else "failed"
    traces = (RECORD, RESULT, METRICS, LOG, LOCK, CHECKPOINTS)
    return "lost" if any((folder / name).exists() for name in traces) else "pending"
