"""Every node with a `_target_`: may it be named, may it stand there, and does it take these arguments?

`_target_` makes a configuration a program. `diffusion_lab.cli.targets` says which classes may be named at all; this
says where: a sampler where a sampler stands. The kind of a top-level node is its group's base class, that of a node
inside a part is the annotation of the argument that takes it, so a new part needs no entry here. A function may stand
for a part if it is annotated to return one; of this package only the functions of the maths, which neither read nor
write anything, are allowed. Modules are imported to see what a name leads to; nothing is called.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Collection
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.annotations import (
    SPECIAL,
    Kinds,
    decided_by_type,
    described,
    fits,
    in_words,
    kinds_of,
)
from diffusion_lab.cli.checks.origin import origin
from diffusion_lab.cli.checks.setting import shown
from diffusion_lab.cli.checks.settings import required_groups
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.targets import Trust, resolve

KINDS = {  # group -> base class of its options
    "task": "diffusion_lab.data.Task",
    "dataset": "diffusion_lab.data.ImageDataModule",
    "autoencoder": "diffusion_lab.data.Autoencoder",
    "network": "torch.nn.Module",
    "schedule": "diffusion_lab.diffusion.NoiseSchedule",
    "prediction": "diffusion_lab.diffusion.Prediction",
    "variance": "diffusion_lab.diffusion.Variance",
    "preconditioning": "diffusion_lab.diffusion.Preconditioning",
    "weighting": "diffusion_lab.diffusion.Weighting",
    "sampler": "diffusion_lab.timesteps.TimestepSampler",
    "optimizer": "torch.optim.Optimizer",
    "annealing": "diffusion_lab.annealing.Annealing",
    "solver": "diffusion_lab.solvers.Solver",
    "metrics": "diffusion_lab.metrics.Evaluation",
    "metric.*": "diffusion_lab.metrics.Metric",
    "analysis": "diffusion_lab.analyses.Analysis",
    "trainer": "lightning.pytorch.Trainer",
    "callbacks.*": "lightning.pytorch.Callback",
    "logger.*": "lightning.pytorch.loggers.Logger",
    # The data know the extractor by what it does alone: metrics stand above them.
    "dataset.features": "diffusion_lab.metrics.FeatureExtractor",
}
NETWORK_ARGUMENTS = ("in_channels", "out_channels", "image_size")  # a module that lacks them is another kind of part
PURE = "diffusion_lab.diffusion."  # the package whose functions compute and do nothing else
SHOWN = 12  # arguments that a message names


def check_nodes(cfg: DictConfig, trust: Trust, only: Collection[str] | None = None) -> list[ConfigError]:
    """Faults of all parts, found without calling anything: of what they are, or else of what they are given.

    Args:
        cfg: a configuration without Hydra's node. References into it are followed to where they lead, not here.
        trust: whose classes may be named beside those of this package.
        only: the top-level nodes whose arguments must fit; None for all. What they are is checked everywhere.
    """
    walk = _Walk(trust)
    content = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=False))
    fitting = content.keys() if only is None else content.keys() & set(only)
    walk.values({key: value for key, value in content.items() if key in fitting}, cfg, "", ())
    for key in required_groups():
        if key in fitting and "_target_" not in (content[key] or ()):
            walk.family(cfg, key)
    walk.fitting = False
    walk.values({key: value for key, value in content.items() if key not in fitting}, cfg, "", ())
    return [ConfigError(text) for text in walk.foreign or walk.unfit]


class _Walk:
    """One pass over the tree: `foreign` says of a `_target_` that it may not be there, `unfit` what its arguments lack.

    The tree is given twice, as plain values with their references in words, and as the nodes that follow them.
    """

    def __init__(self, trust: Trust) -> None:
        self.trust, self.fitting = trust, True
        self.foreign: list[str] = []
        self.unfit: list[str] = []

    def values(self, content: dict[Any, Any], node: Any, path: str, kinds: Any) -> None:
        """All values of a container. A reference is checked where it leads.

        Args:
            content: its values; of a list by their places.
            node: the container.
            path: where it is.
            kinds: which parts may stand below it: a tuple of classes, an annotation, or the annotation of each key.
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
                    goal = origin(node, key)
                    if goal.split(".")[0] not in required_groups():
                        self._lost(f"{place} refers to {goal}, which does not exist; give it a value")

    def _lost(self, text: str) -> None:
        if self.fitting:
            self.unfit.append(text)

    def _part(self, content: dict[Any, Any], node: Any, path: str, asked: Any) -> None:
        """A node: what its `_target_` names is of the kind that its place has, or else that is asked for; its values.

        Args:
            asked: classes, or the annotation of the argument that takes it.
        """
        base = KINDS.get(path) or KINDS.get(f"{path.rpartition('.')[0]}.*")
        kinds = (_load(base),) if base else asked if isinstance(asked, tuple) else _asked_for(asked)
        if "_target_" not in content:
            if base is not None:
                group = path.partition(".")[0]
                self.foreign.append(f"{path}._target_ is missing; choose an option of the group, {group}=...")
            else:
                self.values(content, node, path, kinds)
            return
        try:
            target = resolve(path, node["_target_"], self.trust)
            usual = inspect.isclass(target) and issubclass(target, kinds) and not inspect.isabstract(target)
            if not usual or path == "network":
                _check_kind(f"{path}._target_={node['_target_']}", path, target, kinds)
        except ConfigError as error:
            self.foreign.append(str(error))
            return
        if self.fitting:
            self.unfit += _argument_faults(content, path, target)
        self.values(content, node, path, described(target).hints)

    def family(self, cfg: DictConfig, key: str) -> None:
        """A top-level node is one part, or a family of parts such as the callbacks; a single value would go nowhere."""
        node = cfg.get(key)
        if not isinstance(node, DictConfig) or "_target_" in node or not len(node):
            return
        parts, alone = [], []
        for child in node:
            value = node[child]
            if value is not None:
                (parts if isinstance(value, DictConfig) and "_target_" in value else alone).append(str(child))
        if len(alone) > len(parts) or not parts:  # a part that has lost its class, not a family with a stray value
            self.unfit.append(f"{key}._target_ is missing; choose an option of the group, {key}=...")
            return
        for child in alone:
            self.unfit.append(f"{key}.{child} has no _target_, so nothing takes it{nearest(child, parts)}")


@functools.cache
def _asked_for(hint: Any) -> Kinds:
    """The kinds that an argument takes; an argument that does not say takes any part."""
    return tuple(map(_load, KINDS.values())) if hint is Any else kinds_of(hint)


@functools.cache
def _load(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _check_kind(key: str, path: str, found: Any, kinds: Kinds) -> None:
    """Whether what a `_target_` names may stand at `path`.

    Raises:
        ConfigError: it is no part, another kind of part, abstract, or a function that may do anything.
    """
    if not kinds:
        raise ConfigError(f"{key} must stand where a part is expected, and {path} is none; leave it out")
    wanted = " or ".join([kind.__name__ for kind in kinds[:3]])
    made, is_class = described(found).made, inspect.isclass(found)
    module = f"{found.__module__}."
    pure = is_class or not module.startswith("diffusion_lab.") or module.startswith(PURE)
    if made is None or not issubclass(made, kinds) or not pure:
        advice = "" if is_class else ", or a function annotated to return one"
        raise ConfigError(f"{key} must be a {wanted}{advice}; choose an option of the group or a class of that kind")
    if inspect.isabstract(found):
        raise ConfigError(f"{key} must be a concrete {wanted}, and is abstract; name one of its subclasses")
    if path == "network" and not set(NETWORK_ARGUMENTS) <= set(described(found).parameters):
        raise ConfigError(f"{key} must be a network that takes {', '.join(NETWORK_ARGUMENTS)}; use network=unet_tiny")


def _argument_faults(content: dict[Any, Any], path: str, target: Any) -> list[str]:
    """Keys that do not exist, arguments that are missing, values of the wrong type."""
    parameters, needed, open_ended, hints, _ = described(target)
    faults = []
    for key, value in content.items():
        if key in SPECIAL:
            continue
        if key not in parameters:
            if not open_ended:
                name = content["_target_"].rpartition(".")[2]
                faults.append(
                    f"{path}.{key}={shown(value)}: {name} has no argument {key}{nearest(str(key), parameters)}; "
                    f"it takes {', '.join(list(parameters)[:SHOWN])}{', ...' if len(parameters) > SHOWN else ''}"
                )
        elif key in hints and not (isinstance(value, str) and ("${" in value or value == "???")):
            hint, default = hints[key], parameters[key].default
            if (type(value) not in decided_by_type(hint) or value == "") and not fits(value, hint):
                cure = f"use {shown(default)}, the default" if default is not inspect.Parameter.empty else ""
                faults.append(f"{path}.{key}={shown(value)} must be {in_words(hint)}; {cure or 'see its yaml file'}")
    if not content.get("_partial_", False):
        for name in needed:
            if name not in content:
                faults.append(f"{path}.{name} is missing, and {content['_target_']} needs it; set {path}.{name}=...")
    return faults
