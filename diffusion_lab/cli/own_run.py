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
from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.own_yaml import gone, lost_dir
from diffusion_lab.cli.targets import PROVIDED, Trust, importable, own_folder
from diffusion_lab.files import read_object
from diffusion_lab.runs.identity import parts
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.record import read_record
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


def read_run_record(folder: Path, key: str, trust: Trust) -> tuple[dict[str, Any], Trust]:
    """The record of a run, whose folder the setting `key` names, and `with_own` for it; ConfigError also for a folder
    that is no run."""
    with config_errors(""):
        record = read_record(folder, key)
    return record, with_own(trust, record, f"{key}={folder}")


def with_own(trust: Trust, record: Any, key: str) -> Trust:
    """`trust` and, for a record that this user has signed, the modules of its own classes, which can then be imported;
    `key` is the setting and value that named the folder.

    Raises:
        ConfigError: such a module is not where it was, and the command line does not say where it is.
    """
    modules = own_parts_of(record).get("modules", {})
    known = {*PROVIDED, *(name.split(".")[0] for name in trust.names)}  # or allowed by the command line
    there = {name for name in modules if name in known or own_folder(name, trust.folders)}
    wanted = {name: Path(folder) for name, folder in modules.items() if name not in there}
    importable(tuple(wanted.values()))
    trust = dataclasses.replace(trust, folders=tuple(dict.fromkeys((*trust.folders, *wanted.values()))))
    for name, folder in wanted.items():
        if own_folder(name, trust.folders) is None:
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
