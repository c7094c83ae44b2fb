"""From nodes of a configuration to objects: each `_target_` is called once, and only if it may be named."""

from __future__ import annotations

import functools
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf

from diffusion_lab.cli.checks.annotations import SPECIAL, class_fault, classes_of, described
from diffusion_lab.cli.checks.typed_keys import key_to_type
from diffusion_lab.cli.config import config_folders
from diffusion_lab.cli.errors import ConfigError, at
from diffusion_lab.cli.targets import Trust, resolve
from diffusion_lab.runs.identity import parts as nodes


class RunParts:
    """The parts of one configuration, each built at its first use.

    A node is one object, also if another node refers to it: with `sampler: ${sampler}` the callback has the same object
    as `parts["sampler"]`. Lists and mappings are converted to Python's, as with Hydra's `_convert_: all`.

    Args:
        cfg: a composed configuration, in which the names of metrics have been replaced by parts if metrics are used.
        trust: the classes that may be named; by default those of this package and the user's own.
    """

    def __init__(self, cfg: DictConfig, trust: Trust | None = None) -> None:
        self.cfg = cfg
        self._trust = Trust.typed(config_folders()) if trust is None else trust
        self._made: dict[str, Any] = {}

    def __getitem__(self, path: str) -> Any:
        """The object of the node at a dotted path, e.g. "sampler" or "callbacks.ema".

        Raises:
            ConfigError: the constructor rejects an argument; the message has the path of the node.
        """
        if path in self._made:
            return self._made[path]
        return self._object(OmegaConf.select(self.cfg, path), path)

    def family(self, name: str) -> dict[str, Any]:
        """The parts of a family such as the callbacks, in order, without those that are null."""
        return {key: self[f"{name}.{key}"] for key, node in self.cfg[name].items() if node is not None}

    def with_arguments(self, path: str, **more: Any) -> Any:
        """A new object of the node at a path, with the arguments of the node and `more`."""
        return self._call(OmegaConf.select(self.cfg, path), path, more)

    def build_all(self, kind: type) -> None:
        """Build every node of a class, wherever it is."""
        for path, node in nodes(cast(dict[Any, Any], OmegaConf.to_container(self.cfg, resolve=False))):
            if node["_target_"] == f"{kind.__module__}.{kind.__name__}":
                self[path]

    def built(self) -> list[tuple[str, Any]]:
        """The parts that are built, by the paths of their nodes."""
        return list(self._made.items())

    def fresh(self) -> RunParts:
        """The same parts, none of them built."""
        return RunParts(self.cfg, self._trust)

    def without(self, path: str) -> RunParts:
        """The same objects, but for the node at `path` and those inside it, which will be built again."""
        parts = self.fresh()
        inside = (f"{path}.", f"{path}[")
        parts._made = {key: made for key, made in self._made.items() if key != path and not key.startswith(inside)}
        return parts

    def _object(self, node: Any, path: str) -> Any:
        """The value itself, or for a node with `_target_` its part, which is the same object for the same path."""
        if path not in self._made and isinstance(node, DictConfig) and "_target_" in node:
            self._made[path] = self._call(node, path, {})
        if path in self._made:
            return self._made[path]
        if isinstance(node, DictConfig):
            return self._values(node, path)
        return list(self._values(node, path).values()) if isinstance(node, ListConfig) else node

    def _values(self, node: Any, path: str) -> dict[Any, Any]:
        """The values of a container by key or index, with nodes replaced by their parts."""
        values, listed = {}, isinstance(node, ListConfig)
        recursive = listed or node.get("_recursive_", True)
        for key in range(len(node)) if listed else node:
            value = node[key]
            if key in SPECIAL:
                continue
            if not recursive and OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True)
            elif isinstance(value, DictConfig | ListConfig):
                below = f"{path}[{key}]" if listed else f"{path}.{key}"
                value = self._object(value, key_to_type(node, key) if OmegaConf.is_interpolation(node, key) else below)
            values[key] = value
        return values

    def _call(self, node: DictConfig, path: str, more: dict[str, Any]) -> Any:
        """The object of a node, or with `_partial_` a `functools.partial`; ConfigError if the class of an argument does
        not match its annotation, or the constructor rejects it."""
        target = resolve(path, node["_target_"], self._trust)
        hints, arguments = described(target).hints, self._values(node, path) | more
        for key, value in arguments.items():
            classes = classes_of(hints.get(key, Any))
            if classes and not isinstance(value, classes):
                raise ConfigError(f"{path}.{class_fault(key, value, classes)}")
        if node.get("_partial_"):
            return functools.partial(target, **arguments)
        try:
            return target(**arguments)
        except ConfigError:
            raise
        except (ValueError, FileNotFoundError) as error:
            raise at(path, error) from error


def part(cfg: DictConfig, name: str) -> Any:
    """A new object of one node; errors of its constructor have the path of the node."""
    return RunParts(cfg)[name]
