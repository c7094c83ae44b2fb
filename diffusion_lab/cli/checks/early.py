"""The arguments of all parts, checked before torch is imported, which takes seconds.

Signatures are read from source text, so an error in a key or a type is reported at once. Whether a class is allowed and
fits its place is the first question and needs the class itself (`nodes.py`); this check therefore speaks only where
every part is of a class that a yaml file of the package has at that place.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.annotations import argument_faults
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.checks.written import written
from diffusion_lab.cli.conf_folder import METRIC, conf_dir, yaml_file
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.options.defaults import defaults


def check_arguments(cfg: DictConfig) -> list[ConfigError] | None:
    """Errors in the arguments of all parts; None if `nodes.py` might find others, which are reported together."""
    content = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=False))
    nodes = [(path, node) for path, node in _nodes(content, "") if not path.startswith(f"{METRIC}.")]  # read from files
    complete = all(
        _is_part_or_family(content.get(group), default) for group, default in part_groups().items() if group != "hydra"
    )
    shipped = {path: _shipped(path, node["_target_"]) for path, node in nodes}
    if not complete or not all(shipped.values()):
        return None
    changed = [(path, node) for path, node in nodes if node not in shipped[path]]  # tests check the package's files
    return [ConfigError(text) for path, node in changed for text in _faults(path, node)]


def _faults(path: str, node: dict[str, Any]) -> list[str]:
    signature = written(node["_target_"])
    return argument_faults(node, path, signature) if signature is not None else []


def _nodes(content: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and content of every node with a `_target_`; items of a list have the list's path."""
    if isinstance(content, dict) and "_target_" in content:
        yield path, content
    for key, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, dict | list):
            yield from _nodes(value, f"{path}.{key}" if path else str(key))
    for value in content if isinstance(content, list) else ():
        yield from _nodes(value, path)


def _is_part_or_family(node: Any, default: str | None) -> bool:
    if node is None:
        return default is None
    return isinstance(node, dict) and ("_target_" in node or all(isinstance(part, dict) for part in node.values()))


def _shipped(path: str, target: Any) -> list[dict[str, Any]]:
    """The nodes of a class that the package's yaml files have at a place; none for what is not the name of a class."""
    group, _, inside = path.partition(".")
    return _placed(group).get((inside.rpartition(".")[2], target), []) if isinstance(target, str) else []


@functools.cache
def _placed(group: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Name of a place and class -> the nodes that the package's yaml files of a group put there; "" is the node
    itself."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for folder, file in _files(group):
        for path, node in _nodes(yaml_file(file), ""):
            found[path.rpartition(".")[2] or folder, str(node["_target_"])].append(node)
        for entry in defaults(file):  # that put an option of another group into this one: `/sampler@base: uniform`
            for _, other in _files(entry.group) if entry.from_top and not entry.overrides else ():
                node = yaml_file(other)
                if "_target_" in node:
                    found[entry.place or entry.group, str(node["_target_"])].append(node)
    return dict(found)


@functools.cache
def _files(group: str) -> list[tuple[str, Path]]:
    """The place of each file of a group, and the file: what is in prediction/space is placed at prediction.space."""
    top = conf_dir() / group
    return [(path.parent.relative_to(top).name.replace("base", ""), path) for path in top.rglob("*.yaml")]
