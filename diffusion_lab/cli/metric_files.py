"""`metrics.names=[fid,mine]`: each name refers to metric/NAME.yaml, of this package or of a --config-dir.

The names are typed, recorded and hashed. The files are read when parts are checked or built, and only from folders on
the command line: a run folder names metrics but cannot define them.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from diffusion_lab.cli.conf_folder import METRIC, conf_dir
from diffusion_lab.cli.config import config_folders
from diffusion_lab.cli.errors import ConfigError, nearest


def with_metrics(cfg: DictConfig) -> DictConfig:
    """A copy of a composed configuration in which the names of `metrics` have been replaced by parts.

    `metric.NAME` is the content of the file of that name, and `metrics.metrics`, which replaces `metrics.names`, refers
    to all of them in order.

    Raises:
        ConfigError: `metrics.names` is not a list of names, or a file does not exist or cannot be read.
    """
    cfg = copy.deepcopy(cfg)
    node = cfg.get("metrics")
    if not isinstance(node, DictConfig) or "names" not in node:
        return cfg
    names, files = _names(cfg), {}
    for folder in reversed([conf_dir(), *map(Path, config_folders(cfg))]):  # the first folder that has a name is used
        files |= {path.stem: path for path in (folder / METRIC).glob("*.yaml")}
    with open_dict(cfg):
        cfg[METRIC] = {name: _read(name, names, files) for name in names}
        del node["names"]
        node.metrics = f"${{oc.dict.values:{METRIC}}}" if names else []
    return cfg


def misnamed(cfg: DictConfig, metrics: Sequence[Any]) -> list[str]:
    """Errors for metrics whose class has another name than the file, under which results would be recorded."""
    return [
        f"metrics.names=[{typed}] must be the name in its class, and {type(metric).__name__}.name is {metric.name!r}; "
        f"rename the file to {metric.name}.yaml, or let the class have name = {typed!r}"
        for typed, metric in zip(cfg.get(METRIC) or (), metrics, strict=False)
        if typed != metric.name
    ]


def _names(cfg: DictConfig) -> list[str]:
    names = OmegaConf.select(cfg, "metrics.names")
    if not isinstance(names, ListConfig) or len(set(map(str, names))) < len(names):
        raise ConfigError(f"metrics.names={_shown(names)} must be a list of different metrics; use metrics.names=[fid]")
    return list(names)


def _read(name: Any, names: Sequence[Any], files: Mapping[str, Path]) -> DictConfig:
    """The content of metric/NAME.yaml."""
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name not in files:
        raise ConfigError(_no_metric(name, names, sorted(files)))
    path = files[name]
    try:
        content = OmegaConf.load(path)
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}; correct it") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"{path} must hold _target_ and the arguments of a metric; see {conf_dir() / METRIC}")
    return content


def _no_metric(name: Any, names: Sequence[Any], known: Sequence[str]) -> str:
    """The message for a name without a file; says where a file of the user's own lies or is to be looked for."""
    from diffusion_lab.cli.own_yaml import misplaced, own_ones

    key = f"metrics.names={_shown(names)}"
    if isinstance(name, str) and re.fullmatch(r"\w+", name) and (wrong := misplaced(METRIC, name, config_folders())):
        return f"{key}: {wrong}"
    hint = nearest(str(name), known)
    own = "" if hint else own_ones(sys.argv[1:])
    return f"{key} must be metrics, and there is no {name}{hint}; use some of {', '.join(known)}{own}"


def _shown(names: Any) -> str:
    """As it would be typed."""
    listed = isinstance(names, list | tuple | ListConfig)
    return f"[{','.join(map(str, names))}]" if listed else "null" if names is None else str(names)
