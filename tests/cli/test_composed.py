"""A job is composed once for the sweeper, the launcher and all seeds, and what they get is what Hydra composes."""

from __future__ import annotations

import pickle

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import conf_dir, register_resolvers
from hydra_plugins.diffusion_lab_launcher._composed import ComposedOnce

EXCLUDED = "hydra.job.config.override_dirname.exclude_keys=[seed]"


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


@pytest.mark.parametrize(
    "words",
    [
        ["seed={}"],
        ["sampler=speed", "seed={}", "+optimizer.more=1"],
        ["seed={}", "hydra.job.config.override_dirname.item_sep=+", "method=min_snr"],
        ["method=p2", "optimizer.lr=0.1", EXCLUDED, "seed={}"],
        ["name='${{max_steps}}'", "hydra.job.config.override_dirname.kv_sep=:", "seed={}"],
    ],
)
def test_another_seed_is_what_hydra_composes(loader: ConfigLoaderImpl, master: DictConfig, words: list[str]) -> None:
    counted = Counted(loader)
    once = ComposedOnce(counted)
    for seed in (1, 12, 3):
        job = [word.format(seed) for word in words]
        ours, theirs = once.load_sweep_config(master, job), loader.load_sweep_config(master, job)
        assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs) and ours.seed == seed
        for flag in ("struct", "readonly"):
            assert ours._get_flag(flag) == theirs._get_flag(flag)
            assert ours.hydra._get_flag(flag) == theirs.hydra._get_flag(flag)
        ours.max_steps = ours.hydra.job.num = 77  # the launcher changes it; the next seed must not see that
        assert OmegaConf.to_container(ours, resolve=False) != OmegaConf.to_container(theirs, resolve=False)
    assert counted.composed == 1


def test_other_words_for_a_seed_are_composed(loader: ConfigLoaderImpl, master: DictConfig) -> None:
    counted = Counted(loader)
    once = ComposedOnce(counted)
    doubtful = [["name='x,seed=1,y'", f"seed={seed}"] for seed in (1, 2)]  # which is the seed's in the dirname?
    hidden = [[EXCLUDED, "metrics.seed=1", f"seed={seed}"] for seed in (1, 2)]  # only the other one is in it
    later = [[EXCLUDED, f"seed={seed}", "++seed=9"] for seed in (1, 2)]
    text = [["seed=4"], ["seed=007"]]  # Hydra reads the second as a string
    orders = [["seed=1", "max_steps=5"], ["max_steps=6", "seed=1"], ["seed=1", "seed=2"], ["++seed=3"]]
    jobs = [*orders, *text, *doubtful, *hidden, *later]
    for words in jobs:
        ours, theirs = once.load_sweep_config(master, words), loader.load_sweep_config(master, words)
        assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs)
    assert counted.composed == len(jobs)


class Counted:
    """Hydra's loader that counts compositions."""

    def __init__(self, loader: ConfigLoaderImpl) -> None:
        self.loader, self.composed = loader, 0

    def load_sweep_config(self, master: DictConfig, words: list[str]) -> DictConfig:
        self.composed += 1
        return self.loader.load_sweep_config(master, words)


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
