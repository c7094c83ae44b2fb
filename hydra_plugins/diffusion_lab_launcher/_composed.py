"""One composition for all seeds of a job."""

from __future__ import annotations

import copy
import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

_SEED = re.compile(r"seed=(0|[1-9]\d*)")  # what Hydra reads as an integer; 007 is a string


class ComposedOnce:
    """Hydra's config loader with a cache of job configurations.

    A composition takes about 0.15 s of CPU, most of the launcher's time. Hydra's sweeper composes every job to validate
    it and discards the result, and the launcher composes it again; and jobs that differ in nothing but `seed=N` have
    configurations that differ in the value of `seed` and in what Hydra records of the words. So a job is composed once,
    and one of another seed is a copy.

    Args:
        loader: Hydra's.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._kept: dict[tuple[str, ...], DictConfig] = {}
        self._first: dict[tuple[str, ...], tuple[str, DictConfig]] = {}  # words without the seed's: that, and its copy

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job; the second call returns the result of the first, which it may change."""
        key = tuple(sweep_overrides)
        if key in self._kept:
            return self._kept.pop(key)
        self._kept[key] = self._composed(master_config, sweep_overrides)
        return self._kept[key]

    def _composed(self, master_config: DictConfig, words: list[str]) -> DictConfig:
        seeds = [word for word in words if _SEED.fullmatch(word)]
        if len(seeds) != 1:
            return self._loader.load_sweep_config(master_config, words)
        others = tuple("" if word == seeds[0] else word for word in words)
        if others in self._first:
            return _with_seed(*self._first[others], seeds[0])
        config = self._loader.load_sweep_config(master_config, words)
        if config.hydra.job.override_dirname.count("seed") < 2:  # else the seed's place in it would be a guess
            self._first[others] = seeds[0], copy.deepcopy(config)
        return config

    def forget(self) -> None:
        """Clear the cache, at the end of a batch of jobs."""
        self._kept.clear()
        self._first.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle asks for them before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)


def _with_seed(before: str, config: DictConfig, word: str) -> DictConfig:
    """A copy of the configuration that was composed with the word `before`, as it is composed with `word`."""
    config = copy.deepcopy(config)
    OmegaConf.update(config, "seed", int(word.removeprefix("seed=")))
    task, job = config.hydra.overrides.task, config.hydra.job
    task[list(task).index(before)] = word
    items = [one.replace("=", job.config.override_dirname.kv_sep) for one in (before, word)]
    job.override_dirname = job.override_dirname.replace(*items)
    return config
