"""The checkpoint from which a run continues, and whether the files that belong to it are complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.processes import is_first, say
from diffusion_lab.runs.folder import put_aside
from diffusion_lab.runs.lines import lengths
from diffusion_lab.runs.names import CHECKPOINTS, LOGGED
from diffusion_lab.runs.record import ENDS, as_list


def find_resume_checkpoint(cfg: DictConfig, folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint to continue from, with its content; None to start at step 0.

    With `anew=true` the content of the folder is first moved to its subfolder `before-1`, or the next free number.

    Raises:
        ConfigError: no checkpoint can be used although there are some, or files that belong to them are missing.
    """
    from diffusion_lab.training import NewerCheckpoint, NoneIntact, newest_good

    if cfg.get("anew"):
        if is_first() and (moved := put_aside(folder)):
            say(f"starting {folder} from the beginning; its old files are in {moved}")
        return None  # the other processes may be here before the first has moved everything
    try:
        newest = newest_good(folder / CHECKPOINTS, say, folder)
    except NoneIntact as error:
        raise ConfigError(
            f"hydra.run.dir={folder} must hold a checkpoint that can be used, and has none: {error}. Bring one back "
            "from a copy, or add anew=true to start at step 0, which keeps these files beside"
        ) from error
    except NewerCheckpoint as error:
        raise ConfigError(f"hydra.run.dir={folder} must hold a checkpoint that can be read: {error}") from error
    if newest is not None:
        path, content = newest
        check_whole(path, content)
        check_record(folder, path, content)
    return newest


def former_ends(record: Any, content: dict[str, Any], max_steps: int) -> list[int]:
    """The steps at which a run had its end before it was given a larger `max_steps`, ascending, up to the checkpoint
    with this content, from which it continues.

    An end has lines in the logs that no step within a run has, so `verify` must stop there as well.
    """
    step, known = content["global_step"], record.get(ENDS) if isinstance(record, dict) else None
    before = [end for end in as_list(known) if type(end) is int and 0 < end <= step]
    ended = step >= content["callbacks"]["RunRecord"]["config"]["max_steps"] and max_steps > step
    return sorted({*before, *([step] if ended else [])})


def check_whole(path: Path, content: dict[str, Any]) -> None:
    """Raise ConfigError unless a checkpoint has everything that a run needs."""
    record = content.get("callbacks", {}).get("RunRecord", {})
    needed = {key: content.get(key) for key in ("global_step", "state_dict", "optimizer_states", "loops")}
    needed["callbacks"] = record.get("config")
    missing = [key for key, value in needed.items() if value is None]
    if missing:
        raise ConfigError(
            f"{path}: holds no {', '.join(missing)} and was not written by `diffusion-lab train`, so nothing can go on "
            "from it; remove it, or train into a new folder"
        )


def check_record(folder: Path, path: Path, content: dict[str, Any]) -> None:
    """Raise ConfigError unless the line files have at least the content that they had when the checkpoint was written;
    an empty one is accepted, as the user's choice."""
    if not is_first():  # the first process may be writing them
        return
    known = content["callbacks"]["RunRecord"].get("lines", {})
    for name, length in ((name, known[name]) for name in LOGGED if name in known):
        file, size = folder / name, lengths(folder).get(name)
        if size is None or 0 < size < length:
            state = "is missing" if size is None else f"has {size}"
            raise ConfigError(
                f"{file}: must hold the {length} bytes that it had at step {content['global_step']} ({path.name}), and "
                f"{state}. Bring it back, or put an empty file in its place to go on without what it said, or add "
                "anew=true to start at step 0, which keeps the other files beside"
            )
