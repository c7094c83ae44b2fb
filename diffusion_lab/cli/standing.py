"""Where a run folder stands: which checkpoint a run goes on from, and whether what belongs to it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.processes import is_first, say
from diffusion_lab.runs.folder import put_aside
from diffusion_lab.runs.lines import lengths
from diffusion_lab.runs.names import CHECKPOINTS


def standing(cfg: DictConfig, folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint to go on from, with its content; None to start at step 0.

    With `anew=true` what the folder holds is first put into `before-1` in it, or the next free number.

    Raises:
        ConfigError: there are checkpoints and none can be used, or files are missing that belong to them.
    """
    from diffusion_lab.training import NewerCheckpoint, NoneIntact, newest_good

    if cfg.get("anew"):
        if is_first() and (moved := put_aside(folder)):
            say(f"starting {folder} anew; what it held is in {moved}")
        return None  # the other processes may be here before the first has moved everything
    try:
        found = newest_good(folder / CHECKPOINTS, say)
    except NoneIntact as error:
        raise ConfigError(
            f"hydra.run.dir={folder} must hold a checkpoint that can be used, and has none: {error}. Bring one back "
            "from a copy, or add anew=true to start at step 0, which keeps these files beside"
        ) from error
    except NewerCheckpoint as error:
        raise ConfigError(f"hydra.run.dir={folder} must hold a checkpoint that can be read: {error}") from error
    if found is not None:
        path, content = found
        check_whole(path, content)
        check_record(folder, path, content)
    return found


def check_whole(path: Path, content: dict[str, Any]) -> None:
    """A checkpoint holds all that a run needs; a file of another program may not.

    Raises:
        ConfigError: naming what is missing.
    """
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
    """The line files hold at least what they held when the checkpoint was written; an empty one is the user's will.

    Raises:
        ConfigError: one is missing or shorter.
    """
    if not is_first():  # the first one may be writing
        return
    for name, length in content["callbacks"]["RunRecord"].get("lines", {}).items():
        file, size = folder / name, lengths(folder).get(name)
        if size is None or 0 < size < length:
            state = "is missing" if size is None else f"has {size}"
            raise ConfigError(
                f"{file}: must hold the {length} bytes that it had at step {content['global_step']} ({path.name}), and "
                f"{state}. Bring it back, or put an empty file in its place to go on without what it said, or add "
                "anew=true to start at step 0, which keeps the other files beside"
            )
