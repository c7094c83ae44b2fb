"""`diffusion-lab report` without a folder: which sweeps there are below `runs`, and the command for each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.printable import one_line
from diffusion_lab.runs.advice import command
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.run import STATUSES, Run


class Place(NamedTuple):
    """A folder that holds runs directly: a sweep, or single runs.

    Attributes:
        folder: the folder.
        runs: what a report of it is about, which includes the sweeps below it.
        newest: when the last one started, as its record says; "" if none says.
    """

    folder: Path
    runs: list[Run]
    newest: str


def places(top: Path) -> list[Place]:
    """Every folder at or below `top` that holds runs, the one that was started last first.

    Raises:
        FileNotFoundError, ValueError: as `read_runs`.
    """
    found = read_runs(top).runs
    each = []
    for folder in dict.fromkeys(run.folder.parent for run in found):
        below = [run for run in found if folder in run.folder.parents]
        newest = max(str(run.info.get("started") or "") for run in below)
        each.append(Place(folder, below, newest))
    return sorted(each, key=lambda place: (place.newest, str(place.folder)), reverse=True)


def lines(found: list[Place]) -> list[str]:
    """A line for each place, with its command, and the command for the newest at the end."""
    names = [one_line(str(place.folder)) for place in found]
    counts = [_counts(place.runs) for place in found]
    width, middle = max(map(len, names)), max(map(len, counts))
    rows = [
        f"  {name:<{width}}  {count:<{middle}}  {one_line(place.newest[:16].replace('T', ' '))}".rstrip()
        for name, count, place in zip(names, counts, found, strict=True)
    ]
    return ["Which runs? The newest first:", "", *rows, "", f"next: {command('report', names[0])}"]


def _counts(runs: list[Run]) -> str:
    counts = Counter(run.status for run in runs)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
