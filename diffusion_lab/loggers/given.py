"""What a service that cannot drop a value has been given, so that a run that goes on after a kill does not repeat it.

A kill comes after the last checkpoint, and the steps since then are trained again, with the same values. What was given
is therefore written down, a line {"step": k, "keys": [...]} for each row, before it is given: a kill between the two
loses the row and never doubles it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from diffusion_lab.runs.lines import append_lines, read_lines
from diffusion_lab.runs.record import as_list


class Given:
    """The steps and keys of the rows, in a file of their own.

    Args:
        directory: the run folder.
        name: of the file in it.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.path = directory, directory / name
        self._earlier: set[tuple[int, str]] = set()

    def cut(self, step: int) -> None:
        """The run goes on from this step. Evaluations of the step itself may be repeated as well."""
        rows = [row for row in read_lines(self.path, self.directory) if row["step"] >= step]
        self._earlier = {(row["step"], str(key)) for row in rows for key in as_list(row.get("keys"))}

    def new(self, step: int, keys: Iterable[str]) -> list[str]:
        """Those of the keys that were not given at this step before the run was continued; they are now."""
        new = [key for key in keys if (step, key) not in self._earlier]
        if new:
            append_lines(self.path, [{"step": step, "keys": new}])
        return new
