"""The top-level settings of train.yaml: their types and ranges, names that do not exist, parts that are missing."""

from __future__ import annotations

import functools
from typing import Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.owned import owned_faults
from diffusion_lab.cli.checks.setting import Setting, faults_of
from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.cost.devices import GPUS
from diffusion_lab.cli.errors import ConfigError, nearest

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")  # weights, averages and tables are float32 in all of them
LONGEST = 10**12  # optimizer steps
OPTIONAL_GROUPS = ("method", "experiment", "scale", "debug")


SETTINGS = {
    "seed": Setting(int, "use e.g. seed=0", least=0),
    "max_steps": Setting(int, "use 2000", least=1, most=LONGEST),
    "batch_size": Setting(int, "use 64", least=1),
    "images_per_device": Setting(int, "use a divisor of batch_size, or null", least=1, null=True),
    "accumulate": Setting(int, "use 1", least=1),
    "precision": Setting(str, "use 32-true", among=PRECISIONS),
    "channels_last": Setting(bool, "use null for what is faster", null=True),
    "compile": Setting(bool, "use compile=false"),
    "gradient_clip": Setting(float, "use 1.0, or null for no clipping", least=0, open=True, null=True),
    "log_every": Setting(int, "use 50", least=1),
    "snapshot_every": Setting(int, "use 500, or 0 for none", least=0),
    "metrics_every": Setting(int, "use 2000, or 0 for metrics at every snapshot", least=0),
    "checkpoint_every": Setting(int, "use 500, or 0 for one at the end", least=0),
    "keep_every": Setting(int, "use a multiple of checkpoint_every, or 0 for none", least=0),
    "name": Setting(
        str,
        "use null to name the sweep by its experiment or data set, and paths.root for another place",
        null=True,
        pattern=r"[^/\\.][^/\\]*",
        form="the name of one folder, which does not start with a dot",
    ),
    "resume": Setting(str, "give a run folder", null=True),
    "anew": Setting(bool, "use anew=false to go on with what the folder holds"),
    "hang_timeout_min": Setting(float, "use 5", least=0, open=True),
    "objective": Setting(str, "give a metric, e.g. metrics/fd1k_digits", null=True),
    "threads": Setting(int, "use null for one per core", least=1, null=True),
    "dry_run": Setting(bool, "use dry_run=true"),
    "cost.device": Setting(str, "use cost.device=A100", among=tuple(GPUS)),
    "cost.utilization": Setting(float, "use cost.utilization=0.3", least=0, open=True),
    "paths.root": Setting(str, "use paths.root=runs"),
}


@functools.cache
def _shipped() -> tuple[dict[str, Any], dict[str, str | None]]:
    """The plain keys of conf/train.yaml, and its groups with their defaults."""
    cfg = OmegaConf.to_container(OmegaConf.load(conf_dir() / "train.yaml"))
    assert isinstance(cfg, dict)
    entries = [entry for entry in cfg.pop("defaults") if isinstance(entry, dict)]
    groups = {key: value for entry in entries for key, value in entry.items() if " " not in key}
    return {str(key): value for key, value in cfg.items()}, groups


@functools.cache
def required_groups() -> dict[str, str | None]:
    """Groups without which nothing can be trained, with their defaults."""
    return {group: default for group, default in _shipped()[1].items() if group not in OPTIONAL_GROUPS}


def check_settings(cfg: DictConfig) -> list[ConfigError]:
    """Names that do not exist, parts and settings that are missing, values out of range."""
    plain, groups = _shipped()
    known = [*plain, *groups]
    errors = [
        f"{key}: there is no setting {key}{nearest(str(key), known)}; `diffusion-lab train --help` lists them"
        for key in cfg
        if key not in known
    ]
    for group in ("paths", "cost"):
        if isinstance(cfg.get(group), DictConfig):
            errors += [
                f"{group}.{key}: there is no setting {group}.{key}{nearest(str(key), plain[group])}"
                for key in cfg[group]
                if key not in plain[group]
            ]
    for group, default in required_groups().items():
        if not isinstance(cfg.get(group), DictConfig):
            errors.append(f"{group}=null must be one of the options of its group; use {group}={default}")
    return [*map(ConfigError, errors), *faults_of(cfg, SETTINGS), *map(ConfigError, owned_faults(cfg))]
