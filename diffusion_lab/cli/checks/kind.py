"""Checks of what the kind of a model needs and what has no meaning for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.setting import shown
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.targets import Trust, resolve

if TYPE_CHECKING:
    from diffusion_lab.training import ModelKind


def kind_of(cfg: DictConfig, trust: Trust) -> type[ModelKind]:
    """The class of the node `model`; that of diffusion models if it names no kind, which `check_nodes` reports."""
    from diffusion_lab.training import DiffusionModel, ModelKind

    node = cfg.get("model")
    try:
        target = resolve("model", node["_target_"] if isinstance(node, DictConfig) else None, trust)
    except (ConfigError, KeyError):
        return DiffusionModel
    return target if inspect.isclass(target) and issubclass(target, ModelKind) else DiffusionModel


def check_kind(cfg: DictConfig, trust: Trust) -> list[ConfigError]:
    """Errors for missing parts, for parts without a meaning for this kind of model, and for settings that it fixes."""
    return [ConfigError(text) for text in _faults(cfg, kind_of(cfg, trust))]


def _faults(cfg: DictConfig, kind: type[ModelKind]) -> Iterator[str]:
    cure = f", and use {kind.chosen_by}" if kind.chosen_by else ""
    for group, default in part_groups().items():
        node = cfg.get(group)
        if group not in kind.unused:
            if default is not None and not isinstance(node, DictConfig):
                yield f"{group}=null must be one of the options of its group; use {group}={default}"
        elif isinstance(node, DictConfig) and "_target_" in node:
            option = choices_of(cfg).get(group) or node["_target_"].rpartition(".")[2]
            yield f"{group}={option} must be null, because {kind.why_unused}; leave it out{cure}"
    for key, (allowed, why) in kind.fixed.items():
        value = OmegaConf.select(cfg, key)
        if value != allowed:
            use = f"use {key}={shown(allowed)}"
            yield f"{key}={shown(value)} must be {shown(allowed)}, because {why}; {use}"
