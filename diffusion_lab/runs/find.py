"""Finding the runs below a folder, and their status, while they are being written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.files_inside import NotInside, open_inside
from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import (
    CHECKPOINTS,
    EVALUATIONS,
    LOCK,
    LOG,
    METRICS,
    RECORD,
    RESULT,
    SWEEP,
    TIMING,
    is_run,
)
from diffusion_lab.runs.record import (
    RECORD_KINDS,
    RESULT_KINDS,
    as_list,
    is_done,
    read_checked,
    read_question,
    read_sweep,
)
from diffusion_lab.runs.run import Run, RunFolder

LONGEST_NAME = 255  # bytes of a file name


def read_runs(path: str | Path, read: Callable[..., Run] | None = None) -> RunFolder:
    """Read every run at or below a folder: sweeps in the order of their jobs, then single runs as they were started.
    The question of a single run is that of the sweep in whose folder it lies.

    Args:
        path: the folder.
        read: reads one run, with the arguments of `read_run`, the default.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds no run.
    """
    path, read = Path(path), read or read_run
    if not os.path.isdir(path):  # unlike `Path.is_dir`, without an error for a name that is too long
        raise FileNotFoundError(f"folder={path} must be an existing folder; give a run's or a sweep's, e.g. runs")
    runs: dict[Path, Run] = {}
    single: dict[Path, Run] = {}
    sweeps: dict[Path, tuple[str, ...]] = {}
    questions: dict[Path, dict[str, Any]] = {}
    if is_run(path) and (question := read_question(_real(path).parent)):
        questions[path.parent] = question
    for folder in _folders(path):
        commands, jobs = read_sweep(folder, path)
        if commands:
            sweeps[folder] = tuple(commands)
        if question := read_question(folder, path):
            questions[folder] = question
        for job in jobs:
            place = _job_folder(folder, str(job["dir"]))
            runs.setdefault(_real(place), read(place, as_list(job.get("overrides")), path))
        if is_run(folder) and (place := _real(folder)) not in runs:
            single[place] = read(folder, top=path)
    for place, run in sorted(single.items(), key=lambda item: str(item[1].info.get("started"))):
        runs.setdefault(place, run)
    if not runs:
        raise ValueError(
            f"folder={path} must hold runs, and no {RECORD}, {RESULT} or {SWEEP} lies in it or below; "
            "start some with `diffusion-lab train`"
        )
    return RunFolder(path, tuple(runs.values()), sweeps, questions)


class RunsFolder(NamedTuple):
    """A folder that holds runs directly: a sweep, or single runs.

    Attributes:
        folder: the folder.
        runs: what a report of it is about, which includes the sweeps below it.
        newest: when the last one started, as its record says; "" if none says.
    """

    folder: Path
    runs: list[Run]
    newest: str


def runs_folders(top: Path) -> list[RunsFolder]:
    """Every folder at or below `top` that holds runs, the one that was started last first.

    Raises:
        FileNotFoundError, ValueError: as `read_runs`.
    """
    found = read_runs(top).runs
    each = []
    for folder in dict.fromkeys(run.folder.parent for run in found):
        below = [run for run in found if folder in run.folder.parents]
        newest = max(str(run.info.get("started") or "") for run in below)
        each.append(RunsFolder(folder, below, newest))
    return sorted(each, key=lambda place: (place.newest, str(place.folder)), reverse=True)


def read_run(folder: Path, overrides: list[str] | None = None, top: Path | None = None) -> Run:
    """Read one run folder.

    Args:
        folder: the run folder.
        overrides: used if run.json has none.
        top: the folder that the user named, below which no link is followed; None: `folder`.
    """
    top = folder if top is None else top
    info, damaged = read_checked(folder / RECORD, RECORD_KINDS, top)
    result, more = read_checked(folder / RESULT, RESULT_KINDS, top)
    found = [*damaged, *more, *_unreadable(folder, top)]
    faults = tuple(dict.fromkeys(found[:1] if found and not _is_inside(folder, top) else found))
    status = _status(folder, result, top)
    status = "damaged" if faults and status != "running" else status
    typed = info.get("overrides") or overrides or []
    return Run(folder, status, tuple(map(str, typed)), info, result, faults, top)


def _is_inside(folder: Path, top: Path) -> bool:
    """Whether the folder itself is reached; else each of its files has the same fault."""
    return _real(folder).is_relative_to(_real(top)) and not (folder != top and folder.is_symlink())


def _unreadable(folder: Path, top: Path) -> Iterator[str]:
    """A sentence for each line file that is no regular file of the folder, or too large."""
    for name in (METRICS, EVALUATIONS, TIMING):
        try:
            open_inside(folder / name, top).close()
        except NotInside as error:
            yield str(error)
        except OSError:  # it is not there
            continue


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))  # unlike `Path.resolve`, without an error for links in a circle


def _folders(top: Path) -> Iterator[Path]:
    """`top` and the folders below it; not those inside a run, nor hidden ones."""
    for place, names, _ in os.walk(top):
        folder = Path(place)
        names[:] = [] if is_run(folder) else sorted(name for name in names if not name.startswith("."))
        yield folder


def _job_folder(sweep: Path, name: str) -> Path:
    """The job's folder; if the sweep folder was moved, the subfolder of the same name.

    One that lies elsewhere is returned as it is named, and `read_run` says that it does.
    """
    try:
        place, top = sweep / name, _real(sweep)
        if (real := _real(place)).is_relative_to(top) and os.path.exists(real):
            return sweep / real.relative_to(top)
        beside = sweep / (Path(name).name or "_")
        if len(os.fsencode(beside.name)) > LONGEST_NAME:
            return sweep / "_"
        return place if os.path.lexists(place) and not os.path.lexists(beside) else beside
    except ValueError:  # a character that no file name has
        return sweep / "_"


def _status(folder: Path, result: dict[str, Any], top: Path) -> str:
    if is_done(result):
        return "done"
    if is_locked(folder, top):  # checked before the result, which may be that of an earlier attempt
        return "running"
    if result:
        return result["status"] if result.get("status") in ("interrupted", "pruned") else "failed"
    traces = (RECORD, RESULT, METRICS, LOG, LOCK, CHECKPOINTS)
    return "lost" if any((folder / name).exists() for name in traces) else "pending"
