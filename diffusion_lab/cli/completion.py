"""Tab completion of commands, of the words of `list`, and of folders: run folders after `run=`, `resume=` and
`init_from=`, folders of runs after `report`.

Hydra completes settings and options. Which words are folders it does not know, and which folders are runs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.cli.command_line import PLACED
from diffusion_lab.cli.help import COMMANDS
from diffusion_lab.runs.names import is_run

KEYS = ("run", "resume", "init_from", "pilot")  # whose value is a run folder
MOST = 200  # suggestions


def suggestions(line: Sequence[str], of_hydra: Sequence[str]) -> list[str] | None:
    """What the last word of a command line can become; None where Hydra completes it.

    Args:
        line: the words after the program's name; the last one may be "".
        of_hydra: commands whose settings Hydra completes.
    """
    command = line[0] if line else ""
    if len(line) < 2:
        return [name for name in COMMANDS if name.startswith(command)]
    if command == "list":
        from diffusion_lab.cli.commands.list import completions

        return completions(line[-1])
    found = folders(command, line[-1])
    return [] if found is None and command not in of_hydra else found


def folders(command: str, word: str) -> list[str] | None:
    """What a word can become; None if it is not a place for a folder.

    A run folder, or a folder above one, which ends with "/" so that completion goes on in it.
    """
    key, equals, value = word.partition("=")
    if equals and key in KEYS:
        several, comma, last = value.rpartition(",") if key == "run" else ("", "", value)
        return [f"{key}={several}{comma}{one}" for one in _below(last)]
    return _below(word) if command in PLACED and not equals and not word.startswith("-") else None


def _below(begin: str) -> list[str]:
    """Folders whose path begins so; those without a run at or below them are left out."""
    parent, slash, name = begin.rpartition("/")
    top = Path(f"{parent}{slash}" or ".")
    try:
        inside = sorted(path for path in top.iterdir() if path.is_dir() and path.name.startswith(name))
    except OSError:
        return []
    shown = [path for path in inside if name.startswith(".") or not path.name.startswith(".")]
    found = [(path, is_run(path)) for path in shown]
    return [f"{parent}{slash}{path.name}{'' if run else '/'}" for path, run in found if run or _holds_runs(path)][:MOST]


def _holds_runs(folder: Path, depth: int = 3) -> bool:
    """Whether a run lies below, as far as a sweep's are."""
    try:
        inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return False
    return any(is_run(path) for path in inside) or (depth > 1 and any(_holds_runs(path, depth - 1) for path in inside))
