"""Keys that were deleted with `~`: a part would take its library's default without a word in the record."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf


def typed() -> list[str]:
    """The overrides of the running command, or of the job that is being checked."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


def deleted_faults(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """A sentence for each deleted argument that its part still takes, and would take a default for.

    A part of a family, `~callbacks.validation`, may go, and so may an argument that another class does not have.

    Args:
        cfg: a configuration whose `_target_`s may be resolved.
        overrides: as typed.
    """
    for word in overrides:
        if not word.startswith("~"):
            continue
        key = word[1:].partition("=")[0]
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else None
        if not isinstance(node, DictConfig) or "_target_" not in node or name in node:
            continue
        taken = inspect.signature(get_method(node["_target_"])).parameters.get(name)
        if taken is not None and taken.default is not taken.empty:
            default = "null" if taken.default is None else taken.default
            own = f"{node['_target_']} would take its own default {default}"
            yield f"~{key} must not be said, because {own}; write {key}={default}"
