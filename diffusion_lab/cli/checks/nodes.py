"""Checks of every node with a `_target_`: is the class allowed, does it fit the place, does it take these arguments?

`_target_` makes a configuration executable. `diffusion_lab.cli.targets` defines which classes are allowed at all; this
module defines where: a sampler where a sampler is expected. The kind of a top-level node is the base class of its
group, and that of a nested node is the annotation of its argument, so a new part needs no entry here. A function is
allowed in place of a class if it is annotated to return one; of this package only the functions of `diffusion`, which
neither read nor write files, are allowed. Modules are imported to resolve names; nothing is called.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.annotations import Kinds, argument_faults, described, kinds_of
from diffusion_lab.cli.checks.setting import as_text
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.checks.typed_keys import key_to_type
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.targets import Trust, resolve
from diffusion_lab.runs.identity import parts as parts_of

if TYPE_CHECKING:
    from diffusion_lab.training import ModelKind

KINDS = {  # group -> base class of its options
    "model": "diffusion_lab.training.ModelKind",
    "task": "diffusion_lab.data.Task",
    "dataset": "diffusion_lab.data.ImageDataModule",
    "order": "diffusion_lab.data.ImageOrder",
    "autoencoder": "diffusion_lab.data.Autoencoder",
    "format": "diffusion_lab.export.Form",
    "network": "torch.nn.Module",
    "schedule": "diffusion_lab.diffusion.NoiseSchedule",
    "prediction": "diffusion_lab.diffusion.Prediction",
    "variance": "diffusion_lab.diffusion.Variance",
    "preconditioning": "diffusion_lab.diffusion.Preconditioning",
    "time": "diffusion_lab.diffusion.NetworkTime",
    "coupling": "diffusion_lab.diffusion.TrainingNoise",
    "weighting": "diffusion_lab.diffusion.Weighting",
    "auxiliary.*": "diffusion_lab.auxiliary.Auxiliary",
    "sampler": "diffusion_lab.timesteps.TimestepSampler",
    "optimizer": "torch.optim.Optimizer",
    "annealing": "diffusion_lab.annealing.Annealing",
    "averaging": "diffusion_lab.averaging.AveragingRule",
    "solver": "diffusion_lab.solvers.Solver",
    "metrics": "diffusion_lab.metrics.Evaluation",
    "metric.*": "diffusion_lab.metrics.Metric",
    "analysis": "diffusion_lab.analyses.Analysis",
    "trainer": "lightning.pytorch.Trainer",
    "callbacks.*": "lightning.pytorch.Callback",
    "logger.*": "lightning.pytorch.loggers.Logger",
    # `data` cannot import the extractor's class from `metrics`, which imports `data`.
    "dataset.features": "diffusion_lab.metrics.FeatureExtractor",
    "features": "diffusion_lab.metrics.FeatureExtractor",
}
NETWORK_ARGUMENTS = ("in_channels", "out_channels", "image_size")  # a module without them is not a network
PURE = "diffusion_lab.diffusion."  # the package whose functions have no side effects


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
    return [ConfigError(text) for text in _kind_faults(cfg, kind_of(cfg, trust))]


def _kind_faults(cfg: DictConfig, kind: type[ModelKind]) -> Iterator[str]:
    cure = f", and use {kind.chosen_by}" if kind.chosen_by else ""
    for group, default in part_groups().items():
        node = cfg.get(group)
        if group not in kind.unused:
            if default is not None and not isinstance(node, DictConfig):
                yield f"{group}=null must be one of the options of its group; use {group}={default}"
        elif isinstance(node, DictConfig) and (made := parts_of(cast(dict[str, Any], OmegaConf.to_container(node)))):
            option = choices_of(cfg).get(group) or made[0][1]["_target_"].rpartition(".")[2]
            yield f"{group}={option} must be null, because {kind.why_unused}; leave it out{cure}"
    for key, (allowed, why) in kind.fixed.items():
        value = OmegaConf.select(cfg, key)
        if value != allowed:
            use = f"use {key}={as_text(allowed)}"
            yield f"{key}={as_text(value)} must be {as_text(allowed)}, because {why}; {use}"


def check_nodes(cfg: DictConfig, trust: Trust, only: Collection[str] | None = None) -> list[ConfigError]:
    """Errors in the classes of all parts, or else in their arguments, without calling anything.

    Args:
        cfg: a configuration without Hydra's node.
        trust: the classes that may be named besides those of this package.
        only: the top-level nodes whose arguments are checked; None for all. Classes are checked everywhere.
    """
    check = _NodesCheck(trust)
    content = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=False))
    for key in kind_of(cfg, trust).unused:  # a scale may set an argument of a part that is not there
        if isinstance(content.get(key), dict) and "_target_" not in content[key]:
            del content[key]
    checked = content.keys() if only is None else content.keys() & set(only)
    check.values({key: value for key, value in content.items() if key in checked}, cfg, "", ())
    for key, default in part_groups().items():
        if key in checked and key in content and "_target_" not in (content[key] or ()):
            if content[key] is default is None:
                continue
            check.family(cfg, key)
    check.with_arguments = False
    check.values({key: value for key, value in content.items() if key not in checked}, cfg, "", ())
    return [ConfigError(text) for text in check.target_errors or check.argument_errors]


def check_some(cfg: DictConfig, trust: Trust, names: Collection[str]) -> list[ConfigError]:
    """`check_nodes` of some top-level nodes; the others are not looked at, nor are their classes imported."""
    check = _NodesCheck(trust)
    content = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=False))
    check.values({name: content[name] for name in names}, cfg, "", ())
    return [ConfigError(text) for text in check.target_errors or check.argument_errors]


class _NodesCheck:
    """One pass over the tree.

    The tree is given twice, as plain values with unresolved references, and as nodes that resolve them.
    """

    def __init__(self, trust: Trust) -> None:
        self.trust, self.with_arguments = trust, True
        self.target_errors: list[str] = []
        self.argument_errors: list[str] = []

    def values(self, content: dict[Any, Any], node: Any, path: str, kinds: Any) -> None:
        """Check all values of a container. The value of a reference is checked at its own place.

        Args:
            content: its values; of a list by index.
            node: the container.
            path: its dotted path.
            kinds: parts that are allowed below it: a tuple of classes, an annotation, or the annotation of each key.
        """
        for key, value in content.items():
            place = f"{path}[{key}]" if isinstance(node, ListConfig) else f"{path}.{key}" if path else str(key)
            if isinstance(value, dict | list):
                asked = kinds.get(key, Any) if isinstance(kinds, dict) else kinds
                if isinstance(value, dict):
                    self._part(value, node._get_node(key), place, asked)
                elif {str, dict, list}.intersection(map(type, value)):
                    self.values(dict(enumerate(value)), node._get_node(key), place, asked)
            elif not isinstance(value, str):
                continue
            elif value == "???":
                self._lost(f"{place} is missing; give it a value")
            elif "${" in value:
                try:
                    node[key]
                except OmegaConfBaseException:
                    goal = key_to_type(node, key)
                    if goal.split(".")[0] not in part_groups():
                        self._lost(f"{place} refers to {goal}, which does not exist; give it a value")

    def _lost(self, text: str) -> None:
        if self.with_arguments:
            self.argument_errors.append(text)

    def _part(self, content: dict[Any, Any], node: Any, path: str, asked: Any) -> None:
        """Check the class of a node, by its place or else by `asked`, classes or the annotation of an argument, and
        then its arguments."""
        base = KINDS.get(path) or KINDS.get(f"{path.rpartition('.')[0]}.*")
        kinds = (_load(base),) if base else asked if isinstance(asked, tuple) else _asked_for(asked)
        if "_target_" not in content:
            if base is not None:
                self.target_errors.append(_without_class(path, node._get_root()))
            else:
                self.values(content, node, path, kinds)
            return
        try:
            target = resolve(path, node["_target_"], self.trust)
            usual = inspect.isclass(target) and issubclass(target, kinds) and not inspect.isabstract(target)
            if not usual or path == "network":
                _check_kind(f"{path}._target_={node['_target_']}", path, target, kinds)
        except ConfigError as error:
            self.target_errors.append(str(error))
            return
        if self.with_arguments:
            self.argument_errors += argument_faults(content, path, described(target))
        self.values(content, node, path, described(target).hints)

    def family(self, cfg: DictConfig, key: str) -> None:
        """A top-level node must be one part, or a family of parts such as the callbacks without other values."""
        node = cfg.get(key)
        if not isinstance(node, DictConfig) or "_target_" in node or not len(node):
            return
        parts, alone = [], []
        for child in node:
            value = node[child]
            if value is not None:
                (parts if isinstance(value, DictConfig) and "_target_" in value else alone).append(str(child))
        if len(alone) > len(parts) or not parts:  # a part without its class, not a family with an unexpected value
            self.argument_errors.append(_without_class(key, cfg))
            return
        for child in alone:
            self.argument_errors.append(f"{key}.{child} has no _target_, so nothing takes it{nearest(child, parts)}")


def _without_class(path: str, cfg: DictConfig) -> str:
    """The message for a part without its class: what its own yaml file lacks, or which option is to be chosen."""
    from diffusion_lab.cli.own_yaml import own_file

    group, _, name = path.partition(".")
    file = own_file(cfg, group, name)
    cure = f"add `_target_: file.Class` to {file}" if file else f"choose an option of the group, {group}=..."
    return f"{path}._target_ is missing; {cure}"


@functools.cache
def _asked_for(hint: Any) -> Kinds:
    """The classes that an argument accepts; any part if its annotation has none."""
    return tuple(map(_load, KINDS.values())) if hint is Any else kinds_of(hint)


@functools.cache
def _load(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _check_kind(key: str, path: str, target: Any, kinds: Kinds) -> None:
    """Raise ConfigError unless the object of a `_target_` is allowed at `path`: not if it is no part, another kind of
    part, abstract, or a function that may have side effects."""
    if not kinds:
        raise ConfigError(f"{key} must be where a part is expected, and {path} is not; leave it out")
    wanted = " or ".join([kind.__name__ for kind in kinds[:3]])
    made, is_class = described(target).made, inspect.isclass(target)
    module = f"{target.__module__}."
    pure = is_class or not module.startswith("diffusion_lab.") or module.startswith(PURE)
    if made is None or not issubclass(made, kinds) or not pure:
        advice = "" if is_class else ", or a function annotated to return one"
        raise ConfigError(f"{key} must be a {wanted}{advice}; choose an option of the group or a class of that kind")
    if inspect.isabstract(target):
        missing = sorted(getattr(target, "__abstractmethods__", ()))
        cure = "name one of its subclasses" if target in kinds else f"define them in {target.__name__}"
        raise ConfigError(f"{key} must be a concrete {wanted}, and lacks {', '.join(missing)}; {cure}")
    if path == "network" and not set(NETWORK_ARGUMENTS) <= set(described(target).parameters):
        raise ConfigError(f"{key} must be a network that takes {', '.join(NETWORK_ARGUMENTS)}; use network=unet_tiny")
