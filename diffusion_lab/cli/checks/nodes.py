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

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.annotations import (
    SPECIAL,
    Kinds,
    decided_by_type,
    described,
    fits,
    in_words,
    kinds_of,
    shown,
)
from diffusion_lab.cli.checks.origin import origin
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
    for key in content:
        walk.fitting = only is None or key in only
        walk.child(content, cfg, key, str(key), ())
        if walk.fitting and key in required_groups():
            walk.family(cfg, key)
    return [ConfigError(text) for text in walk.foreign or walk.unfit]


class _Walk:
    """One pass over the tree: `foreign` says of a `_target_` that it may not be there, `unfit` what its arguments lack.

    The tree is given twice, as plain values with their references in words, and as the nodes that follow them.
    """

    def __init__(self, trust: Trust) -> None:
        self.trust, self.fitting = trust, True
        self.foreign: list[str] = []
        self.unfit: list[str] = []

    def child(self, content: Any, parent: Any, key: Any, path: str, kinds: Kinds) -> None:
        """One value of a container and all below it; `kinds` are those that its place asks for, if the place says."""
        value = content[key]
        if isinstance(value, str):
            if value == "???":
                self._unfit(f"{path} is missing; give it a value")
            elif "${" in value:
                self._reference(parent, key, path)
        elif isinstance(value, dict):
            self._node(value, parent._get_node(key), path, kinds)
        elif isinstance(value, list):
            node = parent._get_node(key)
            for i, item in enumerate(value):
                if isinstance(item, str | dict | list):
                    self.child(value, node, i, f"{path}[{i}]", kinds)

    def _node(self, content: dict[Any, Any], node: Any, path: str, kinds: Kinds) -> None:
        hints, base = None, _base(path)
        if "_target_" in content:
            try:
                found = resolve(path, node["_target_"], self.trust)
                _check_kind(f"{path}._target_={node['_target_']}", path, found, base or kinds)
            except ConfigError as error:
                self.foreign.append(str(error))
                return
            hints = described(found).hints
            if self.fitting:
                self.unfit += _argument_faults(content, path, found)
        elif base:
            self.foreign.append(f"{path}._target_ is missing; choose an option of the group, {path.split('.')[0]}=...")
            return
        for key, value in content.items():
            if isinstance(value, dict | list) or (isinstance(value, str) and ("${" in value or value == "???")):
                below = kinds if hints is None else _asked_for(hints.get(key, Any))
                self.child(content, node, key, f"{path}.{key}", below)

    def _reference(self, parent: Any, key: Any, path: str) -> None:
        """What it refers to is checked where it stands."""
        try:
            parent[key]
        except OmegaConfBaseException:
            goal = origin(parent, key)
            if goal.split(".")[0] not in required_groups():
                self._unfit(f"{path} refers to {goal}, which does not exist; give it a value")

    def _unfit(self, text: str) -> None:
        if self.fitting:
            self.unfit.append(text)

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


def _base(path: str) -> Kinds:
    """The class that `KINDS` gives for a place, () for one that it does not know."""
    group, _, rest = path.partition(".")
    name = KINDS.get(path) or (KINDS.get(f"{group}.*") if rest and "." not in rest else None)
    return () if name is None else (_load(name),)


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
                faults.append(
                    f"{path}.{key}={shown(value)} must be {in_words(hint)}; {cure or 'see its yaml file'}"
                )
    if not content.get("_partial_", False):
        for name in needed:
            if name not in content:
                faults.append(
                    f"{path}.{name} is missing, and {content['_target_']} needs it; set {path}.{name}=..."
                )
    return faults
