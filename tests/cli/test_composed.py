"""A job is composed once for Hydra's sweeper and the launcher together, and what they get is what Hydra composes."""

from __future__ import annotations

import pickle

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import conf_dir, register_resolvers
from hydra_plugins.diffusion_lab_launcher._composed import ComposedOnce


@pytest.fixture(scope="module")
def loader() -> ConfigLoaderImpl:
    register_resolvers()
    return ConfigLoaderImpl(create_config_search_path(str(conf_dir())))


@pytest.fixture(scope="module")
def master(loader: ConfigLoaderImpl) -> DictConfig:
    return loader.load_configuration("train", ["max_steps=3"], RunMode.MULTIRUN)


def test_the_second_call_gets_what_the_first_composed(loader: ConfigLoaderImpl, master: DictConfig) -> None:
    once = ComposedOnce(loader)
    first = once.load_sweep_config(master, ["seed=1"])
    assert first == loader.load_sweep_config(master, ["seed=1"])
    assert once.load_sweep_config(master, ["seed=1"]) is first
    again = once.load_sweep_config(master, ["seed=1"])  # the launcher has changed `first` by now
    assert again == first and again is not first
    assert once.load_sweep_config(master, ["seed=2"]).seed == 2


def test_nothing_is_kept_after_a_batch_and_in_another_process(loader: ConfigLoaderImpl, master: DictConfig) -> None:
    once = ComposedOnce(loader)
    first = once.load_sweep_config(master, ["seed=1"])
    once.forget()
    assert once.load_sweep_config(master, ["seed=1"]) is not first
    once.forget()
    copy = pickle.loads(pickle.dumps(once))
    assert OmegaConf.to_yaml(copy.load_sweep_config(master, ["seed=1"])) == OmegaConf.to_yaml(first)
    assert copy.get_search_path() is not None  # the rest is Hydra's own
    with pytest.raises(AttributeError):
        getattr(copy, "_no_such_" + "thing")
