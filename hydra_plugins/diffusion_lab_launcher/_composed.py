"""One composition per job."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig


class ComposedOnce:
    """Hydra's config loader, which remembers the configuration of a job from one call to the next.

    Hydra's sweeper composes every job, to see whether that can be done, and throws the result away; the launcher then
    asks for the same. A composition takes a quarter of a second, most of what the launcher costs.

    Args:
        loader: Hydra's.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._kept: dict[tuple[str, ...], DictConfig] = {}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job; what the first call composed is given to the second, which may change it."""
        key = tuple(sweep_overrides)
        if key in self._kept:
            return self._kept.pop(key)
        self._kept[key] = self._loader.load_sweep_config(master_config, sweep_overrides)
        return self._kept[key]

    def forget(self) -> None:
        """Remember nothing, at the end of a batch of jobs."""
        self._kept.clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pickle asks for them before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)
