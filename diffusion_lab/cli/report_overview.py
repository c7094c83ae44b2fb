"""`diffusion-lab report` without a folder: the folders of runs, of which one is to be named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diffusion_lab.printable import one_line
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.runs.run import Run


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
    from diffusion_lab.runs.find import read_runs

    found = read_runs(top).runs
    each = []
    for folder in dict.fromkeys(run.folder.parent for run in found):
        below = [run for run in found if folder in run.folder.parents]
        newest = max(str(run.info.get("started") or "") for run in below)
        each.append(RunsFolder(folder, below, newest))
    return sorted(each, key=lambda place: (place.newest, str(place.folder)), reverse=True)


def lines(found: list[RunsFolder]) -> list[str]:
    """A line for each place, with its command, and the command for the newest at the end."""
    from diffusion_lab.runs.run import status_words

    names = [one_line(str(place.folder)) for place in found]
    counts = [status_words(place.runs) for place in found]
    width, middle = max(map(len, names)), max(map(len, counts))
    rows = [
        f"  {name:<{width}}  {count:<{middle}}  {one_line(place.newest[:16].replace('T', ' '))}".rstrip()
        for name, count, place in zip(names, counts, found, strict=True)
    ]
    title = "There are several folders of runs, the newest first:"
    return [title, "", *rows, "", f"next: {command('report', names[0])}"]
