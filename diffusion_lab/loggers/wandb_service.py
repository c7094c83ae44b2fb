"""What W&B is given: whether its server can be reached, lists as curves and charts, and a record of what was given.

A run logs the same lists hundreds of times. Where each is a table of its own, as in W&B, those are kept whose step is
at least g times that of the last kept one, g = 1.1, and the last of the run. Of n logs at equal intervals these are at
most 2 + 1/(g - 1) + ln(n (g - 1))/ln g, which is 60 for n = 1000.

A kill comes after the last checkpoint, and the steps since then are trained again, with the same values. What was given
is therefore written down, a line {"step": k, "keys": [...]} for each row, before it is given: a kill between the two
loses the row and never doubles it.

A chart that is logged as `key` is drawn from the table `key_table`. The table has all coordinates of the list, so that
a dashboard can draw the same table over another one, e.g. over log SNR instead of the timestep.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from diffusion_lab.loggers.base import Axes
from diffusion_lab.runs.lines import append_lines, read_lines
from diffusion_lab.runs.record import as_list
from diffusion_lab.runs.wandb_names import INDEX, VALUE

GROWTH = 1.1
_PROBE_SECONDS = 3.0


class LoggedList(NamedTuple):
    """A list that was logged, the coordinates of its entries, and the step."""

    values: Sequence[float]
    axes: Axes
    step: int

    def table(self) -> tuple[list[Any], list[Any]]:
        """Columns, the coordinates and then `VALUE`, and a row for each entry that is a number."""
        axes = self.axes or {INDEX: range(len(self.values))}
        rows = [list(row) for row in zip(*axes.values(), self.values, strict=True)]
        return [*axes, VALUE], [row for row in rows if math.isfinite(row[-1])]


class ThinnedLists:
    """Curves by key, of which few are kept."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}  # key -> step of the last kept curve
        self._keys: set[str] = set()
        self._waiting: dict[str, LoggedList] = {}

    def go_on(self, kept: Mapping[str, int]) -> None:
        """After curves that were kept at these steps."""
        self._kept = dict(kept)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, curves: Mapping[str, LoggedList]) -> dict[str, LoggedList]:
        """The curves of these that are kept now; the others wait, in place of earlier ones with their key."""
        now = {key: curve for key, curve in curves.items() if curve.step >= GROWTH * self._kept.get(key, 0)}
        self._keys |= curves.keys()
        self._kept |= {key: curve.step for key, curve in now.items()}
        self._waiting |= curves
        for key in now:
            del self._waiting[key]
        return now

    def rest(self) -> dict[str, LoggedList]:
        """The curves that wait at the end of the run."""
        rest, self._waiting = self._waiting, {}
        return rest


def check_reachable(url: str) -> None:
    """Open and close a connection to the server, because `wandb.init` takes 100 s to notice a missing network.

    Nothing is tried behind a proxy.

    Raises:
        OSError: the server cannot be reached.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    socket.create_connection((parts.hostname or "", port), timeout=_PROBE_SECONDS).close()


def brief(error: Exception) -> str:
    """Class and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class SentRecord:
    """The steps and keys of the rows, in a file of their own.

    Args:
        directory: the run folder.
        name: of the file in it.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.path = directory, directory / name
        self._earlier: set[tuple[int, str]] = set()

    def cut(self, step: int) -> dict[str, int]:
        """The run goes on from this step. Evaluations of the step itself may be repeated as well. Returns the last step
        before it at which each key was given."""
        rows = [
            (row["step"], str(key)) for row in read_lines(self.path, self.directory) for key in as_list(row.get("keys"))
        ]
        self._earlier = {row for row in rows if row[0] >= step}
        return {key: at for at, key in sorted(row for row in rows if row[0] < step)}

    def new(self, step: int, keys: Iterable[str]) -> list[str]:
        """Those of the keys that were not given at this step before the run was continued; they are now."""
        new = [key for key in keys if (step, key) not in self._earlier]
        if new:
            append_lines(self.path, [{"step": step, "keys": new}])
        return new


def chart(key: str, curve: LoggedList) -> Any:
    """A line over the first coordinate."""
    import wandb

    columns, rows = curve.table()
    return wandb.plot.line(wandb.Table(columns=columns, data=rows), columns[0], VALUE, title=key)
