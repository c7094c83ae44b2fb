"""Files with one JSON object per line: append, read, cut back on resume; and which evaluations of a step are done."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from diffusion_lab.files import is_count, json_text, parse, read_object, replacing, write_json
from diffusion_lab.files_inside import read_inside, regular
from diffusion_lab.held_folder import current, with_folders
from diffusion_lab.runs.names import EVALUATED, EVALUATIONS, LOGGED, TIMING

LARGEST_STEP = 2**40


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append one JSON object per line in a single write: a kill leaves at most one incomplete line, at the end, which
    is ended before others follow."""
    path = with_folders(path)
    # Opened for each call, because `cut_lines` may have replaced the file in between.
    with open(path, "a+b", opener=regular) as file:
        torn = file.seek(0, os.SEEK_END) > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write(("\n" * torn + "".join(f"{json_text(row)}\n" for row in rows)).encode())


def read_lines(path: Path, top: Path | None = None) -> list[dict[str, Any]]:
    """The objects with a "step" in a line file below `top`, by default in any folder; other lines are skipped, and
    what is missing or no regular file there gives []."""
    try:
        content = read_inside(path, top)
    except OSError:
        return []
    return list(rows_of(content))


def rows_of(content: bytes) -> Iterator[dict[str, Any]]:
    """The objects with a "step" in the content of a line file, one after the other; other lines are skipped."""
    for line in io.BytesIO(content):
        try:
            row = parse(line.decode(errors="replace"))
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and 0 <= row["step"] < LARGEST_STEP:
            yield row


def cut_lines(path: Path, step: int) -> None:
    """Drop the lines after `step`, and an incomplete last line, in one atomic replacement; ValueError if another line
    is no JSON object with a step."""
    try:
        content = read_inside(path, largest=None)
    except FileNotFoundError:
        return
    whole = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    kept = [line for number, line in enumerate(whole, 1) if _step(line, f"line {number} of {path.name}") <= step]
    with replacing(path, f"{path.name}.partial") as file:
        file.write(b"".join(kept))
        file.flush()
        os.fsync(file.fileno())


def _step(line: bytes, place: str) -> int:
    try:
        return operator.index(parse(line.decode())["step"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{place} must be a JSON object with a step; restore or remove the line") from None


def lengths(folder: Path) -> dict[str, int]:
    """Sizes in bytes of the existing files that are functions of the run's configuration, by name."""
    paths = {name: current(folder) / name for name in LOGGED}
    return {name: path.stat().st_size for name, path in paths.items() if path.is_file() and not path.is_symlink()}


def cut_back(folder: Path, step: int, sizes: Mapping[str, int] | None, owed: bool) -> None:
    """Drop the lines after `step` from the files that no logger cuts, and truncate the files to `sizes`, bytes by name,
    0 for a file that was not there: what lies beyond was written by an evaluation of this step, which will be repeated.

    Args:
        folder: of the run.
        step: of the checkpoint.
        sizes: at the checkpoint; other names are ignored. None: they are not known.
        owed: whether an evaluation of this step will be repeated; else `diffusion-lab evaluate` has written what lies
            beyond in its file, and it stays.
    """
    for name in (EVALUATIONS, TIMING):
        cut_lines(folder / name, step)
    for name, size in lengths(folder).items():
        if sizes is not None and size > (end := sizes.get(name, 0 if owed else size)) and (owed or name != EVALUATIONS):
            os.truncate(folder / name, end)


def append_evaluations(folder: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Append metrics, each a row with step, name, value and protocol, to the run's evaluations; returns the file."""
    append_lines(path := folder / EVALUATIONS, rows)
    return path


def write_evaluated(folder: Path, step: int, done: list[str]) -> None:
    """Write which evaluations of `step` are done, with the lengths of the line files after them."""
    write_json(folder / EVALUATED, {"step": step, "done": done, "lines": lengths(folder)})


def read_evaluated(folder: Path, step: int) -> tuple[list[str], dict[str, int]] | None:
    """The evaluations of `step` that are done, and the lengths after them; None if none of this step are recorded."""
    content = read_object(folder / EVALUATED) or {}
    done, lines = content.get("done"), content.get("lines")
    if content.get("step") != step or not isinstance(done, list) or not isinstance(lines, dict):
        return None
    if not all(isinstance(key, str) for key in done) or not all(map(is_count, lines.values())):
        return None
    return done, lines
