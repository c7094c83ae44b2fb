"""From nodes of a configuration to objects: each `_target_` is called once, and only if it may be named."""

from __future__ import annotations

import functools
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.annotations import SPECIAL, described, mismatch
from diffusion_lab.cli.checks.origin import origin
from diffusion_lab.cli.config import config_folders
from diffusion_lab.cli.errors import ConfigError, at
from diffusion_lab.cli.targets import Trust, resolve


class Parts:
    """The parts of one configuration, each built when it is first asked for.

    A node is one object, also where another node refers to it: with `sampler: ${sampler}` the callback has the sampler
    that `parts["sampler"]` is. Lists and mappings become those of Python, as with Hydra's `_convert_: all`.

    Args:
        cfg: a composed configuration, in which the names of metrics have become parts if any are asked for.
        trust: whose classes may be named; by default those of this package and the user's own.
    """

    def __init__(self, cfg: DictConfig, trust: Trust | None = None) -> None:
        self.cfg = cfg
        self._trust = Trust.typed(config_folders()) if trust is None else trust
        self._made: dict[str, Any] = {}

    def __getitem__(self, path: str) -> Any:
        """The object of the node at a dotted path, e.g. "sampler" or "callbacks.ema".

        Raises:
            ConfigError: a value that its constructor refuses, with the path of the node before it.
        """
        return self._object(OmegaConf.select(self.cfg, path), path)

    def family(self, name: str) -> dict[str, Any]:
        """The parts of a family such as the callbacks, in order, without those that are switched off."""
        return {key: self[f"{name}.{key}"] for key in self.cfg[name] if self.cfg[name][key] is not None}

    def with_arguments(self, path: str, **more: Any) -> Any:
        """A new object of the node at a path, whose arguments are those of the node and `more`."""
        node = OmegaConf.select(self.cfg, path)
        return self._call(node, path, self._arguments(node, path) | more)

    def anew(self) -> Parts:
        """The same parts, of which none is built yet."""
        return Parts(self.cfg, self._trust)

    def _object(self, node: Any, path: str) -> Any:
        if isinstance(node, ListConfig):
            return [self._value(node, i, f"{path}[{i}]") for i in range(len(node))]
        if not isinstance(node, DictConfig):
            return node
        if "_target_" not in node:
            return self._arguments(node, path)
        if path not in self._made:
            self._made[path] = self._call(node, path, self._arguments(node, path))
        return self._made[path]

    def _arguments(self, node: DictConfig, path: str) -> dict[Any, Any]:
        keys = [key for key in node if key not in SPECIAL]
        if not node.get("_recursive_", True):
            return {key: _plain(node[key]) for key in keys}
        return {key: self._value(node, key, f"{path}.{key}") for key in keys}

    def _value(self, node: DictConfig | ListConfig, key: Any, path: str) -> Any:
        value = node[key]
        if isinstance(value, DictConfig) and OmegaConf.is_interpolation(node, key):
            referred = origin(node, key)
            path = referred if self._is_at(value, referred) else path
        return self._object(value, path)

    def _call(self, node: DictConfig, path: str, arguments: dict[Any, Any]) -> Any:
        """The object of a node from its arguments, or for `_partial_` what waits for the others.

        Raises:
            ConfigError: an argument of another class than its annotation, or what the constructor refuses.
        """
        target = resolve(path, node["_target_"], self._trust)
        hints = described(target).hints
        for key, value in arguments.items():
            if fault := mismatch(key, value, hints.get(key, Any)):
                raise ConfigError(f"{path}.{fault}")
        if node.get("_partial_"):
            return functools.partial(target, **arguments)
        try:
            return target(**arguments)
        except ConfigError:
            raise
        except (ValueError, FileNotFoundError) as error:
            raise at(path, error) from error

    def _is_at(self, node: DictConfig, path: str) -> bool:
        """Whether a path leads to this very node."""
        try:
            return OmegaConf.select(self.cfg, path) is node
        except OmegaConfBaseException:
            return False


def part(cfg: DictConfig, name: str) -> Any:
    """The object of one node, built anew; what its constructor refuses is said with the path of the node."""
    return Parts(cfg)[name]


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
