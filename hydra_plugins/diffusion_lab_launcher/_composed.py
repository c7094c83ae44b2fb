"""One composition per job."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig


class ComposedOnce:
    """Hydra's config loader with a cache of job configurations.

    Hydra's sweeper composes every job to validate it and discards the result, and the launcher composes it again. A
    composition takes a quarter of a second, most of the launcher's time.

    Args:
        loader: Hydra's.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._kept: dict[tuple[str, ...], DictConfig] = {}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job; the second call returns the result of the first, which it may change."""
        key = tuple(sweep_overrides)
        if key in self._kept:
            return self._kept.pop(key)
        self._kept[key] = self._loader.load_sweep_config(master_config, sweep_overrides)
        return self._kept[key]

    def forget(self) -> None:
        """Clear the cache, at the end of a batch of jobs."""
        self._kept.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle asks for them before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)
