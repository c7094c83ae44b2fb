"""Folders of runs: what cannot be one, what is read back from one, and what is removed again.

Run and sweep folders in which nothing has run are removed again; what a run has written is never touched, but for a
result that nobody can read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.files import read_object

PLACES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "resume", "name", "paths.root")


def unmade(error: OSError, arguments: Iterable[str]) -> str:
    """The sentence for a run or sweep folder that Hydra could not make, before any task was called.

    Args:
        error: what the system said.
        arguments: of the command; the last that says where runs go is the one to change.
    """
    words = [word.lstrip("+").partition("=") for word in arguments]
    typed = {key: value for key, _, value in words if key in PLACES}
    key = next((key for key in PLACES if key in typed), "paths.root")
    value, reason = typed.get(key, "runs"), error.strerror or type(error).__name__
    return f"{key}={value} must be a folder that can be made and written to ({reason}: {error.filename}); use another"


def writable(key: str, folder: Path) -> Path:
    """Make a folder that a command will write into, before its work begins.

    Args:
        key: what named it on the command line.
        folder: missing parents are made as well.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(
            f"{key}={folder} must be a folder that can be written to ({error.strerror}); use another"
        ) from error
    return folder


def forget_result(folder: Path) -> None:
    """Remove a result.json that is no JSON object: it says nothing, and the run goes on from its last checkpoint."""
    path = folder / "result.json"
    if path.is_file() and read_object(path) is None:
        path.unlink()


def forget_run(folder: Path) -> None:
    """Remove a run folder in which no run has started: without run.json it is no run."""
    if not folder.is_dir() or (folder / "run.json").exists() or (folder / "result.json").exists():
        return
    shutil.rmtree(folder / ".hydra", ignore_errors=True)
    for name in ("train.log", ".lock"):
        (folder / name).unlink(missing_ok=True)
    _remove_empty(folder)


def forget_sweep(folder: Path) -> None:
    """Remove what Hydra's sweeper writes before the first job, for a sweep that started none."""
    with suppress(OSError):  # it may be no folder at all, which is then what is being reported
        if (folder / "sweep.json").exists():
            return
        (folder / "multirun.yaml").unlink(missing_ok=True)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    for empty in (folder, folder.parent):
        with suppress(OSError):  # it is not empty, or somebody else has removed it
            empty.rmdir()


def write_hydra_folder(folder: Path, cfg: DictConfig, hydra_cfg: DictConfig) -> None:
    """.hydra with the files that Hydra writes, but only for a configuration that has passed its checks."""
    target = folder / ".hydra"
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.yaml").write_text(OmegaConf.to_yaml(cfg))
    (target / "hydra.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra_cfg})))
    (target / "overrides.yaml").write_text(OmegaConf.to_yaml(hydra_cfg.overrides.task))
