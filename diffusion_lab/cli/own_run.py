"""What a run folder of the user's own may ask for without `allow=` or `--config-dir`: what was typed to train it.

`own_parts` of a signed run.json (`runs.signature`) has the --config-dir of the command that trained it, and the folder
of each module with a class of the user's own. The modules themselves are not signed: they are imported as they are now.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import config_folders, plain
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.own_yaml import gone, lost_dir
from diffusion_lab.cli.targets import PROVIDED, Trust, importable, is_own_module, own_folder
from diffusion_lab.files import read_object
from diffusion_lab.runs.identity import parts
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.signature import OWN_PARTS, config_dirs_of, is_own, own_parts_of

WHERE_NOW = "give --config-dir, a folder of yaml files beside which it is now"


def own_parts(cfg: DictConfig, trust: Trust) -> dict[str, Any]:
    """{"own_parts": ...} for run.json, with the modules that `trust` allows; empty if the run goes on in a folder that
    is not the user's, which stays so. `cfg` is complete (`with_metrics`)."""
    if cfg.get("resume") is not None and not is_own(read_object(Path(cfg.resume) / RECORD)):
        return {}
    names = {target.split(".")[0] for target in _targets(cfg) if isinstance(target, str)}
    modules = {name: own_folder(name, trust.folders) for name in sorted(names)}
    found = {name: str(folder) for name, folder in modules.items() if folder is not None}
    return {OWN_PARTS: {"config_dirs": [str(Path(folder).resolve()) for folder in config_folders()], "modules": found}}


def with_own(trust: Trust, record: Any, key: str) -> Trust:
    """`trust` and, for a record that this user has signed, the modules of its own classes, which can then be imported;
    `key` is the setting and value that named the folder.

    Raises:
        ConfigError: such a module is not where it was, and the command line does not say where it is.
    """
    modules = own_parts_of(record).get("modules", {})
    wanted = {
        name: Path(folder) for name, folder in modules.items() if name not in PROVIDED and not _typed(name, trust)
    }
    importable(tuple(wanted.values()))
    trust = dataclasses.replace(trust, folders=tuple(dict.fromkeys((*trust.folders, *wanted.values()))))
    for name, folder in wanted.items():
        if not is_own_module(f"{name}.x", trust.folders):
            cure = WHERE_NOW if trust.command else f"put {name}.py on Python's path and give allow='{name}.CLASS'"
            raise ConfigError(f"{key}: its module {name} was in {folder} and is not there; {cure}")
    return trust


def config_dir_of(record: Any, key: str) -> list[str]:
    """`--config-dir DIR` as it was typed for a run of the user's own, ConfigError if it is there no more; [] for any
    other and for one without."""
    if lost := lost_dir(record):
        raise ConfigError(f"{key}: {gone(lost)}")
    return [word for folder in config_dirs_of(record) for word in ("--config-dir", folder)]


def _targets(cfg: DictConfig) -> list[Any]:
    """Every `_target_`. Nodes that others refer to are there once, so that references need not be resolved, unless one
    stands for a class."""
    written = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(written, dict)
    found = [node["_target_"] for _, node in parts({key: written[key] for key in written if key != "hydra"})]
    if "${" in " ".join(map(str, found)):
        return [node["_target_"] for _, node in parts(plain(cfg))]
    return found


def _typed(module: str, trust: Trust) -> bool:
    """Whether the command line allows classes of a module."""
    named = any(name.split(".")[0] == module for name in trust.names)
    return named or is_own_module(f"{module}.x", trust.folders)
