"""What the tests of the command line share."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, open_dict

from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized

Compose = Callable[..., DictConfig]


@functools.cache
def _with_groups(*overrides: str) -> DictConfig:
    """Composed from groups alone; composing takes most of the time of these tests, so it is done once each."""
    register_resolvers()
    with initialized():
        return compose("train", overrides=list(overrides), return_hydra_config=True)


def _chooses_a_group(override: str) -> bool:
    return (conf_dir() / override.lstrip("+~").split("=")[0]).is_dir() and "=" in override


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Compose]:
    """composed(*overrides): the task's configuration, with run folders below tmp_path."""

    def make(*overrides: str) -> DictConfig:
        cfg = copy.deepcopy(_with_groups(*filter(_chooses_a_group, overrides)))
        values = [f"paths.root={tmp_path}/runs", *(o for o in overrides if not _chooses_a_group(o))]
        ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), cfg)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            cfg.paths.run_dir = f"{cfg.paths.root}/run"
            del cfg["hydra"]
        return cfg

    yield make
    HydraConfig.instance().cfg = None
