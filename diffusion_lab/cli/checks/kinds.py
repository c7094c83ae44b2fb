"""Which kind of part may stand where: a sampler where a sampler stands.

`_target_` makes a configuration a program. `diffusion_lab.cli.targets` says which classes may be named at all; this
says where. The kind of a top-level node is its group's base class, that of a node inside a part is the annotation of
the argument that takes it, so a new part needs no entry here. A function may stand for a part if it is annotated to
return one; of this package only the functions of the maths, which neither read nor write anything, are allowed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable as AbstractCallable
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.signatures import branches, hints_of
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.targets import Trust, resolve

Kinds = tuple[type, ...]

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


def check_kinds(cfg: DictConfig, trust: Trust) -> list[ConfigError]:
    """A fault for each `_target_`, at any depth, that is not allowed, leads nowhere, or is no part for its place.

    Modules are imported to see what a name leads to; nothing is called.

    Args:
        cfg: a configuration without Hydra's node. References into it are followed to where they lead, not here.
        trust: whose classes may be named beside those of this package.
    """
    return [ConfigError(fault) for key in map(str, cfg) for fault in _faults(cfg, key, key, (), trust)]


def _faults(parent: Any, key: Any, path: str, kinds: Kinds, trust: Trust) -> list[str]:
    """Faults of a value and of all below it; `kinds` are those that its place asks for, if the place says."""
    if isinstance(parent, DictConfig) and OmegaConf.is_interpolation(parent, key):
        return []  # checked where it stands
    try:
        node = parent[key]
    except OmegaConfBaseException:  # `???`, which the signatures' check tells
        return []
    faults: list[str] = []
    if isinstance(node, ListConfig):
        for i in branches(node):
            faults += _faults(node, i, f"{path}[{i}]", kinds, trust)
    if not isinstance(node, DictConfig):
        return faults
    hints: Mapping[str, Any] | None = None
    if "_target_" in node:
        try:
            hints = hints_of(_part(path, node["_target_"], _base(path) or kinds, trust))
        except ConfigError as error:
            return [str(error)]
    elif _base(path):
        return [f"{path}._target_ is missing; choose an option of the group, {path.partition('.')[0]}=..."]
    for child in map(str, branches(node)):
        below = kinds if hints is None else _asked_for(hints.get(child, Any))
        faults += _faults(node, child, f"{path}.{child}", below, trust)
    return faults


@functools.cache
def _asked_for(hint: Any) -> Kinds:
    """The kinds that an argument takes; an argument that does not say takes any part."""
    return tuple([_load(name) for name in KINDS.values()]) if hint is Any else classes_of(hint)


def _part(path: str, target: Any, kinds: Kinds, trust: Trust) -> Any:
    """What `target` names, if it may stand at `path`."""
    found = resolve(path, target, trust)
    key = f"{path}._target_={target}"
    if not kinds:
        raise ConfigError(f"{key} must stand where a part is expected, and {path} is none; leave it out")
    wanted = " or ".join(kind.__name__ for kind in kinds[:3])
    made = found if inspect.isclass(found) else _returned(found)
    module = f"{found.__module__}."
    pure = inspect.isclass(found) or not module.startswith("diffusion_lab.") or module.startswith(PURE)
    if made is None or not issubclass(made, kinds) or not pure:
        advice = "" if inspect.isclass(found) else ", or a function annotated to return one"
        raise ConfigError(f"{key} must be a {wanted}{advice}; choose an option of the group or a class of that kind")
    if inspect.isabstract(found):
        raise ConfigError(f"{key} must be a concrete {wanted}, and is abstract; name one of its subclasses")
    if path == "network" and not set(NETWORK_ARGUMENTS) <= set(inspect.signature(found).parameters):
        raise ConfigError(f"{key} must be a network that takes {', '.join(NETWORK_ARGUMENTS)}; use network=unet_tiny")
    return found


def _base(path: str) -> Kinds:
    """The class that `KINDS` gives for a place, () for one that it does not know."""
    group, _, rest = path.partition(".")
    name = KINDS.get(path) or (KINDS.get(f"{group}.*") if rest and "." not in rest else None)
    return () if name is None else (_load(name),)


@functools.cache
def _load(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _returned(function: Any) -> type | None:
    made = hints_of(function).get("return")
    return made if inspect.isclass(made) else None


def classes_of(hint: Any) -> Kinds:
    """The classes that an annotation names: members of unions, items of containers, what a callable returns.

    Builtin types and NumPy's are left out: a value of theirs is written as it is, not made by a `_target_`.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return tuple(kind for member in arguments for kind in classes_of(member))
    if origin is AbstractCallable:
        return classes_of(arguments[-1]) if arguments else ()
    if origin is not None:  # list[X], Sequence[X], dict[str, X]
        return tuple(kind for item in arguments for kind in classes_of(item))
    if not inspect.isclass(hint) or hint.__module__ in ("builtins", "typing", "types"):
        return ()
    return (hint,) if not issubclass(hint, torch.dtype | torch.device) else ()
