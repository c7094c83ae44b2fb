"""Every node with a `_target_` against the signature of what it names: keys that do not exist, arguments that are
missing, values of the wrong type. Nothing is called."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.origin import origin
from diffusion_lab.cli.checks.settings import required_groups
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.targets import Trust, resolve

SPECIAL = ("_target_", "_partial_", "_convert_", "_recursive_")
ABSENT = object()
PLURALS = {int: "integers", float: "numbers", bool: "true or false", str: "texts"}
LISTS = (list, tuple, Sequence, Collection, Iterable)
SHOWN = 12  # arguments that a message names
WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}


def check_nodes(cfg: DictConfig, trust: Trust) -> list[ConfigError]:
    """Faults of all parts, found without calling anything.

    Args:
        cfg: the configuration of a task, without Hydra's node.
        trust: whose classes may be named, see `diffusion_lab.cli.targets`.
    """
    faults = []
    for key in map(str, cfg):
        faults += _walk(cfg, key, key, trust)
        if key in required_groups():
            faults += _check_part(cfg, key)
    return [ConfigError(text) for text in faults]


def _walk(parent: DictConfig | ListConfig, key: Any, path: str, trust: Trust) -> list[str]:
    """Faults of all calls at and below a node."""
    if isinstance(parent, DictConfig) and OmegaConf.is_interpolation(parent, key):
        goal = origin(parent, key)  # what it refers to is checked where it stands
        told = goal.split(".")[0] in required_groups()
        lost = _value(parent, key) is ABSENT and not told
        return [f"{path} refers to {goal}, which does not exist; give it a value"] if lost else []
    node = _value(parent, key)
    if node is ABSENT:
        return [f"{path} is missing; give it a value"]
    faults: list[str] = []
    if isinstance(node, ListConfig):
        for i in branches(node):
            faults += _walk(node, i, f"{path}[{i}]", trust)
    elif isinstance(node, DictConfig):
        for child in branches(node):
            faults += _walk(node, child, f"{path}.{child}", trust)
        if "_target_" in node:
            faults += _check_call(node, path, trust)
    return faults


def branches(node: DictConfig | ListConfig) -> list[Any]:
    """Keys of nodes, references and missing values: what is more than a plain value."""
    keys = list(node) if isinstance(node, DictConfig) else range(len(node))
    return [
        key
        for key in keys
        if OmegaConf.is_interpolation(node, key) or OmegaConf.is_missing(node, key) or OmegaConf.is_config(node[key])
    ]


def _value(parent: DictConfig | ListConfig, key: Any) -> Any:
    """The value, or ABSENT for `???` and for a reference that leads nowhere."""
    try:
        return parent[key]
    except OmegaConfBaseException:
        return ABSENT


def _check_part(cfg: DictConfig, key: str) -> list[str]:
    """A top-level node is one part, or a family of parts such as the callbacks; a lone value would reach nobody."""
    node = cfg.get(key)
    if not isinstance(node, DictConfig) or "_target_" in node or not len(node):
        return []
    if not any(isinstance(node[child], DictConfig) and "_target_" in node[child] for child in node):
        return [f"{key}._target_ is missing; choose an option of the group, {key}=..."]
    parts = [child for child in node if node[child] is not None]
    lone = [child for child in parts if not isinstance(node[child], DictConfig) or "_target_" not in node[child]]
    if 2 * len(lone) > len(parts):  # a part that has lost its class, not a family with a stray value
        return [f"{key}._target_ is missing; choose an option of the group, {key}=..."]
    return [
        f"{key}.{child} has no _target_, so nothing takes it{nearest(str(child), map(str, set(parts) - set(lone)))}"
        for child in lone
    ]


def _check_call(node: DictConfig, path: str, trust: Trust) -> list[str]:
    try:
        target = resolve(path, node["_target_"], trust)
    except ConfigError as error:
        return [str(error)]
    parameters, needed, open_ended = _arguments(target)
    given = [str(key) for key in node if key not in SPECIAL]
    faults = []
    if not open_ended:
        name = node["_target_"].rpartition(".")[2]
        faults += [
            f"{path}.{key}={_show(_value(node, key))}: {name} has no argument {key}{nearest(key, parameters)}; "
            f"it takes {', '.join(list(parameters)[:SHOWN])}{', ...' if len(parameters) > SHOWN else ''}"
            for key in given
            if key not in parameters
        ]
    if not node.get("_partial_", False):
        faults += [
            f"{path}.{name} is missing, and {node['_target_']} needs it; set {path}.{name}=..."
            for name in needed
            if name not in given
        ]
    hints = hints_of(target)
    for key in given:
        reference = OmegaConf.is_interpolation(node, key)  # what it refers to is checked where it stands
        value = _value(node, key) if key in hints and key in parameters and not reference else ABSENT
        if value is ABSENT:
            continue
        if (type(value) not in _decided_by_type(hints[key]) or value == "") and not _fits(value, hints[key]):
            default = parameters[key].default
            cure = f"use {_show(default)}, the default" if default is not parameters[key].empty else "see its yaml file"
            faults.append(f"{path}.{key}={_show(value)} must be {_describe(hints[key])}; {cure}")
    return faults


class _Arguments(NamedTuple):
    parameters: Mapping[str, inspect.Parameter]
    needed: list[str]  # without a default
    open_ended: bool  # takes any keyword


@functools.cache
def _arguments(target: Any) -> _Arguments:
    parameters = inspect.signature(target).parameters
    kinds = [p.kind for p in parameters.values()]
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [name for name, p in parameters.items() if p.default is p.empty and p.kind not in several]
    return _Arguments(parameters, needed, inspect.Parameter.VAR_KEYWORD in kinds)


@functools.cache
def hints_of(target: Any) -> dict[str, Any]:
    """Annotations of the arguments; none where they cannot be evaluated."""
    try:
        return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except Exception:  # noqa: BLE001  an annotation of somebody else's may name what is not imported
        return {}


@functools.cache
def _decided_by_type(hint: Any) -> frozenset[type]:
    """Types of which every value fits an annotation, but for an empty text: what decides most values."""
    found = {member for member in _members(hint) if member in WORDS}
    return frozenset(found | {int} if float in found else found)


def _members(hint: Any) -> list[Any]:
    """The members of a union, nested ones included."""
    if get_origin(hint) in (Union, types.UnionType):
        return [m for argument in get_args(hint) for m in _members(argument)]
    return [hint]


def _fits(value: Any, hint: Any) -> bool:
    """Whether a yaml value may be passed as this annotation; True for annotations that yaml values cannot decide."""
    if isinstance(value, DictConfig) or hint is Any:
        return True
    members = _members(hint)
    known = [member for member in members if _decidable(member)]
    if not known:
        return True
    return any(_fits_one(value, member) for member in known)


def _decidable(member: Any) -> bool:
    return member in WORDS or get_origin(member) in (Literal, dict, *LISTS) or member in (dict, *LISTS)


def _fits_one(value: Any, member: Any) -> bool:
    kind = get_origin(member) or member
    if kind is Literal:
        return value in get_args(member)
    if kind in LISTS:
        inner = [argument for argument in get_args(member) if argument is not Ellipsis]
        if not isinstance(value, ListConfig):
            return False
        if kind is tuple and Ellipsis not in get_args(member) and inner and len(inner) != len(value):
            return False
        return not inner or all(_fits(v, inner[min(i, len(inner) - 1)]) for i, v in enumerate(value))
    if kind is dict:
        return False  # a DictConfig has passed before
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and value != ""
    return type(value) is kind


def _describe(hint: Any) -> str:
    words = []
    for member in _members(hint):
        kind = get_origin(member) or member
        if kind is Literal:
            words += [str(argument) for argument in get_args(member)]
        elif kind in LISTS:
            words.append(_describe_list(member))
        elif member in WORDS:
            words.append(WORDS[member])
    return " or ".join(dict.fromkeys(words))


def _describe_list(member: Any) -> str:
    inner = [argument for argument in get_args(member) if argument is not Ellipsis]
    if get_origin(member) is tuple and Ellipsis not in get_args(member):
        return f"a list of {len(inner)}"
    word = PLURALS.get(inner[0]) if inner else None
    return f"a list of {word}" if word else "a list"


def _show(value: Any) -> str:
    """As it would be typed on the command line."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value) or "''"
