"""What the tests of the command line share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from diffusion_lab.cli.config import conf_dir, register_resolvers

Compose = Callable[..., DictConfig]


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Compose]:
    """composed(*overrides): the task's configuration, with run folders below tmp_path."""

    def make(*overrides: str) -> DictConfig:
        register_resolvers()
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            cfg = compose("train", overrides=[f"paths.root={tmp_path}/runs", *overrides], return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            cfg.paths.run_dir = f"{tmp_path}/runs/run"
            del cfg["hydra"]
        return cfg

    yield make
    HydraConfig.instance().cfg = None


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; Hydra's logging set-up and the import path are restored."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level, path = root.handlers[:], root.level, sys.path[:]
    yield tmp_path
    root.handlers[:], sys.path[:] = handlers, path
    root.setLevel(level)
