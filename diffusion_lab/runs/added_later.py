"""Keys that were added to the configuration after runs had been made without them.

A table lists them, {"<_target_ of the node, or '' for the whole configuration>": {"<key>": default}}. A run that was
saved before a key existed behaves as the key's default does, so the key counts only if it has another value. A node is
identified by its `_target_`, wherever it is: `Stratified` has a sampler in `base`. A key with no `_target_` above it is
dotted: {"": {"callbacks.new": ...}}.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Table = dict[str, dict[str, Any]]

# New keys of yaml files with their defaults, so that older runs keep their names and can continue: by the `_target_` of
# the key's node, wherever it is, or by "" and the path from the top. Values are as in a resolved configuration. Entries
# never change: a default that is changed later makes another run.
ADDED_LATER: Table = {
    "": {"averaging": None, "init_from": None, "model": {"_target_": "diffusion_lab.training.DiffusionModel"}},
    "diffusion_lab.callbacks.EMA": {"rule": None},
    "diffusion_lab.data.FashionMNIST": {"image_size": 28},
    "diffusion_lab.diffusion.cosine": {"shift": 1.0},
    "diffusion_lab.metrics.ClassifierFeatures": {"batch_size": 64},
    "diffusion_lab.metrics.DINOv2Features": {"batch_size": 16},
    "diffusion_lab.metrics.Evaluation": {"reference": None},
    "diffusion_lab.metrics.InceptionFeatures": {"weights": None, "batch_size": 16},
    "diffusion_lab.solvers.Guided": {"steps": None, "channels": None},
    "diffusion_lab.solvers.Heun": {"s_churn": 0.0, "s_min": 0.0, "s_max": None, "s_noise": 1.0},
    "diffusion_lab.timesteps.EqualLossSlots": {"stratify": True},
    "diffusion_lab.timesteps.LearnedBeta": {"rewards": None},
    "diffusion_lab.timesteps.LogitNormal": {"shift": 1.0},
    "diffusion_lab.timesteps.SlotRestricted": {"loss_curve": None},
}


def dropped(config: dict[str, Any], table: Table) -> dict[str, Any]:
    """A copy of a resolved configuration without the keys of the table that have their default value."""
    config = copy.deepcopy(config)
    for parent, key, default in _places(config, table):
        if key in parent and _equal(parent[key], default):
            del parent[key]
    return config


def filled(config: dict[str, Any], table: Table) -> dict[str, Any]:
    """A copy in which missing keys of the table have their default value."""
    config = copy.deepcopy(config)
    for parent, key, default in _places(config, table):
        parent.setdefault(key, copy.deepcopy(default))
    return config


def _places(config: dict[str, Any], table: Table) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """(node of the key, which may be missing; key; default).

    Inner nodes come first: a default may itself be a node with such keys.
    """
    for node in _nodes(config):
        target = "" if node is config else node.get("_target_")
        for dotted, default in table.get(target, {}).items() if isinstance(target, str) else ():
            *parents, key = dotted.split(".")
            parent: Any = node
            for name in parents:
                parent = parent.get(name) if isinstance(parent, dict) else None
            if isinstance(parent, dict):
                yield parent, key, default


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The node and every dict below it, inner ones first."""
    containers: list[Any] = [node]
    for container in containers:  # grows during the loop
        for value in container.values() if isinstance(container, dict) else container:
            if isinstance(value, dict | list):
                containers.append(value)
    return [container for container in reversed(containers) if isinstance(container, dict)]


def _equal(value: Any, default: Any) -> bool:
    """Equality in which True is not 1: their text differs, and so would the hash."""
    return value == default and isinstance(value, bool) == isinstance(default, bool)
