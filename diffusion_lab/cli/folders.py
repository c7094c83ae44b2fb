"""Folders that a command writes to: write permission, and the files of Hydra."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.runs.names import HYDRA

PLACES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "resume", "name", "paths.root")


def unmade(error: OSError, arguments: Iterable[str]) -> str:
    """The message for a run or sweep folder that Hydra could not make before it called the task.

    Args:
        error: the system's error.
        arguments: of the command; the message names the one that sets the folder.
    """
    words = [word.lstrip("+").partition("=") for word in arguments]
    typed = {key: value for key, _, value in words if key in PLACES}
    key = next((key for key in PLACES if key in typed), "paths.root")
    value, reason = typed.get(key, "runs"), error.strerror or type(error).__name__
    return f"{key}={value} must be a folder that can be made and written to ({reason}: {error.filename}); use another"


def writable(key: str, folder: Path) -> Path:
    """Make a folder that a command will write to, with its parents.

    Args:
        key: the setting that names the folder.
        folder: the folder.

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


def write_hydra_folder(folder: Path, cfg: DictConfig, hydra_cfg: DictConfig) -> None:
    """Write the files that Hydra writes to .hydra, after the configuration has passed its checks."""
    target = folder / HYDRA
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.yaml").write_text(OmegaConf.to_yaml(cfg))
    (target / "hydra.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra_cfg})))
    (target / "overrides.yaml").write_text(OmegaConf.to_yaml(hydra_cfg.overrides.task))
