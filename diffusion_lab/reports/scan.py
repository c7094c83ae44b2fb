"""Finding the runs below a folder, and their status, while they are being written.

A run folder holds run.json (what it is) and, once it has ended, result.json; a sweep folder holds run folders and
sweep.json, which also names the jobs that have not started.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diffusion_lab.reports.records import read_checked, read_json
from diffusion_lab.reports.runs import Run, RunFolder

# What the entries of a run's two files are, so that a damaged run is named and the others are reported.
INFO = dict.fromkeys(("config", "versions", "bins", "dataset"), dict) | {"overrides": list}
INFO |= dict.fromkeys(("method", "command", "group_hash", "config_hash", "started", "git"), str)
INFO |= {"seed": int, "parameters": int, "global_batch": (int, float)}
RESULT = {"status": str, "step": (int, float), "metrics": dict, "evaluations": list, "error": dict}
_TRACES = ("run.json", "result.json", "metrics.jsonl", "train.log", ".lock", "checkpoints")


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
        sweep = read_json(folder / "sweep.json")
        if "command" in sweep:
            sweeps[folder] = tuple(map(str, _list(sweep, "commands") or [sweep["command"]]))
        for job in _list(sweep, "jobs"):
            if isinstance(job, dict) and job.get("dir"):
                place = _job_folder(folder, str(job["dir"]))
                runs.setdefault(place.resolve(), read_run(place, _list(job, "overrides")))
        if _is_run(folder):
            single[folder.resolve()] = read_run(folder)
    for place, run in sorted(single.items(), key=lambda item: str(item[1].info.get("started"))):
        runs.setdefault(place, run)
    if not runs:
        raise ValueError(
            f"folder={path} must hold runs, and no run.json, result.json or sweep.json lies in it or below; "
            "start some with `diffusion-lab train`"
        )
    return RunFolder(path, tuple(runs.values()), sweeps)


def read_run(folder: Path, overrides: list[str] | None = None) -> Run:
    """Read one run folder; `overrides` are used when run.json does not say."""
    info, damaged = read_checked(folder / "run.json", INFO)
    result, more = read_checked(folder / "result.json", RESULT)
    typed = info.get("overrides") or overrides or []
    status = _status(folder, result)
    if (damaged or more) and status != "running":
        status = "damaged"
    return Run(folder, status, tuple(map(str, typed)), info, result, tuple(damaged + more))


def _list(content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    return found if isinstance(found, list) else []


def _folders(top: Path) -> Iterator[Path]:
    """`top` and the folders below it; not those inside a run, nor hidden ones."""
    for place, names, _ in os.walk(top):
        folder = Path(place)
        names[:] = [] if _is_run(folder) else sorted(name for name in names if not name.startswith("."))
        yield folder


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("run.json", "result.json"))


def _job_folder(sweep: Path, name: str) -> Path:
    """The job's folder; by its last part if the sweep folder was moved."""
    place = sweep / name
    return place if place.is_dir() else sweep / Path(name).name


def _status(folder: Path, result: dict[str, Any]) -> str:
    said = result.get("status")
    if said == "done":
        return "done"
    if _is_locked(folder / ".lock"):  # before what an earlier attempt has said
        return "running"
    if result:
        return "interrupted" if said == "interrupted" else "failed"
    return "lost" if any((folder / name).exists() for name in _TRACES) else "pending"


def _is_locked(path: Path) -> bool:
    """Whether a process of this machine holds the run's lock; a shared lock is tried, and given back at once."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
