"""Keys that came into the configuration after runs had been made without them.

A table says which, {"<_target_ of the node, or '' for the whole configuration>": {"<key>": default}}. A run that was
saved before a key existed was what the key's default is today. So the key counts only where it has another value. A
node is known by its `_target_`, wherever it stands: `Stratified` holds a sampler in `base`. A key may be dotted, for
what has no `_target_` above it: {"": {"callbacks.new": ...}}.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Table = dict[str, dict[str, Any]]


def dropped(config: dict[str, Any], table: Table) -> dict[str, Any]:
    """A copy of a resolved configuration without those keys of the table that have their default."""
    config = copy.deepcopy(config)
    for parent, key, default in _places(config, table):
        if key in parent and _equal(parent[key], default):
            del parent[key]
    return config


def filled(config: dict[str, Any], table: Table) -> dict[str, Any]:
    """A copy in which every key of the table that is not there has its default."""
    config = copy.deepcopy(config)
    for parent, key, default in _places(config, table):
        parent.setdefault(key, copy.deepcopy(default))
    return config


def _places(config: dict[str, Any], table: Table) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """(node that holds or would hold the key, key, default).

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
    """The node and every dict below it, the inner ones first."""
    containers: list[Any] = [node]
    for container in containers:  # which grows
        for value in container.values() if isinstance(container, dict) else container:
            if isinstance(value, dict | list):
                containers.append(value)
    return [container for container in reversed(containers) if isinstance(container, dict)]


def _equal(value: Any, default: Any) -> bool:
    """True is not 1: they are different text in a hash."""
    return value == default and isinstance(value, bool) == isinstance(default, bool)
