"""One composition for all seeds of a job."""

from __future__ import annotations

import copy
import re
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

_SEED = re.compile(r"seed=(0|[1-9]\d*)")  # what Hydra reads as an integer; 007 is a string
_DIRNAME = "hydra.job.config.override_dirname."


class ComposedOnce:
    """Hydra's config loader with a cache of job configurations.

    A composition takes over 0.1 s of CPU, most of the launcher's time. Hydra's sweeper composes every job to validate
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
        seed = _only_seed(words)
        if seed is None:
            return self._loader.load_sweep_config(master_config, words)
        others = tuple("" if word == seed else word for word in words)
        if others in self._first:
            return _with_seed(*self._first[others], seed)
        config = self._loader.load_sweep_config(master_config, words)
        self._first[others] = seed, copy.deepcopy(config)
        return config

    def forget(self) -> None:
        """Clear the cache, at the end of a batch of jobs."""
        self._kept.clear()
        self._first.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle asks for them before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)


def _only_seed(words: list[str]) -> str | None:
    """The word `seed=N`; None if there is none, or if another word could set the seed or stand in `override_dirname`
    with a text that could be taken for it. Words of Hydra's own are not in `override_dirname`."""
    naming = [word for word in words if "seed" in word and not word.startswith(_DIRNAME)]
    return naming[0] if len(naming) == 1 and _SEED.fullmatch(naming[0]) else None


def _with_seed(before: str, config: DictConfig, word: str) -> DictConfig:
    """A copy of the configuration that was composed with the word `before`, as it is composed with `word`."""
    config = copy.deepcopy(config)
    OmegaConf.update(config, "seed", int(word.removeprefix("seed=")))
    task, job = config.hydra.overrides.task, config.hydra.job
    task[list(task).index(before)] = word
    old, new = (one.replace("=", job.config.override_dirname.kv_sep) for one in (before, word))
    dirname = cast(dict, OmegaConf.to_container(job, resolve=False))["override_dirname"]
    job.override_dirname = dirname.replace(old, new)
    return config
