"""Signatures of parts, the values that the annotation of an argument allows, and whether a node fits them."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable as AbstractCallable
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from diffusion_lab.cli.checks.setting import as_text
from diffusion_lab.cli.errors import nearest

SPECIAL = ("_target_", "_partial_", "_convert_", "_recursive_")
PLURALS = {int: "integers", float: "numbers", bool: "true or false", str: "texts"}
WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
NAMED = ("torch.dtype", "torch.device")  # by a text in yaml
LISTS = (list, tuple, Sequence, Collection, Iterable)
UNIONS = (Union, types.UnionType)
Kinds = tuple[type, ...]
SHOWN = 12  # arguments that a message lists
UNREAD = object()  # a default that was not read


class Signature(NamedTuple):
    """The signature of a class or function.

    Attributes:
        parameters: by name.
        needed: those without a default.
        open_ended: whether it accepts any keyword.
        hints: evaluated annotations; empty if they cannot be evaluated.
        made: the class of its result; None for a function without an annotation.
    """

    parameters: Mapping[str, inspect.Parameter]
    needed: list[str]
    open_ended: bool
    hints: dict[str, Any]
    made: type | None


@functools.cache
def described(target: Any) -> Signature:
    """The signature of the class or function of a `_target_`."""
    is_class = inspect.isclass(target)
    try:
        hints = typing.get_type_hints(target.__init__ if is_class else target)
    except Exception:  # an annotation in other packages may use names that are not imported
        hints = {}
    parameters, needed, open_ended = inspect.signature(target).parameters, [], False
    for name, parameter in parameters.items():
        open_ended = open_ended or parameter.kind is parameter.VAR_KEYWORD
        if parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            needed.append(name)
    returned = hints.get("return")
    return Signature(
        parameters, needed, open_ended, hints, target if is_class else returned if inspect.isclass(returned) else None
    )


@functools.cache
def kinds_of(hint: Any) -> Kinds:
    """The classes in an annotation: members of unions, items of containers, the result of a callable.

    Builtin types and NumPy's are left out: their values are written in yaml, not made by a `_target_`.
    """
    kinds, waiting = [], [hint]
    for member in waiting:  # grows during the loop
        origin, arguments = get_origin(member), get_args(member)
        if origin is AbstractCallable:
            waiting += arguments[-1:]
        elif origin is not None:  # X | Y, list[X], Sequence[X], dict[str, X]
            waiting += arguments
        elif inspect.isclass(member) and member.__module__ not in ("builtins", "typing", "types"):
            if f"{member.__module__}.{member.__name__}" not in NAMED:
                kinds.append(member)
    return tuple(kinds)


@functools.cache
def classes_of(hint: Any) -> Kinds:
    """The classes of an annotation of parts; empty if it allows a yaml value or is not a class."""
    members = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    plain = True
    for member in members:
        is_class = inspect.isclass(member) and get_origin(member) is None and member is not Any
        if not is_class or getattr(member, "_is_protocol", False):
            return ()
        if member is not types.NoneType:  # yaml values and classes made from them, such as a path
            plain = plain and member.__module__ in ("builtins", "pathlib", "os", "numbers")
    return () if plain else members


def class_fault(key: str, value: Any, classes: Kinds) -> str:
    """The message for an object whose class does not match the annotation."""
    names = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in classes)
    said = "null" if value is None else type(value).__name__ if hasattr(value, "__dict__") else str(value)
    return f"{key}={said} must be of the class {names}; leave it out"


@functools.cache
def decided_by_type(hint: Any) -> frozenset[type]:
    """Types of which every value except an empty string matches an annotation; a fast test for most values."""
    known = WORDS.keys() & (get_args(hint) if get_origin(hint) in UNIONS else (hint,))
    return frozenset(known | {int} if float in known else known)


def fits(value: Any, hint: Any) -> bool:
    """Whether a yaml value matches an annotation; True if a yaml value cannot decide it."""
    if hint is Any or (isinstance(value, dict) and "_target_" in value):
        return True
    if isinstance(value, dict):  # of parts, or of values
        return not all(member in (*WORDS, Path) or get_origin(member) is Literal for member in _members(hint))
    answers = [_fits_one(value, member) for member in _members(hint)]
    return True in answers or set(answers) == {None}


def _members(hint: Any) -> Sequence[Any]:
    """The members of a union, which Python flattens."""
    return get_args(hint) if get_origin(hint) in UNIONS else (hint,)


def _fits_one(value: Any, member: Any) -> bool | None:
    """`fits` for a member of a union; None if yaml values cannot decide it."""
    kind, given = get_origin(member) or member, get_args(member)
    if kind is Literal:
        return value in given
    if kind is dict:
        return False  # `fits` has accepted mappings
    if kind in LISTS:
        inner = [argument for argument in given if argument is not Ellipsis]
        if not isinstance(value, list) or (_is_record(member) and len(inner) != len(value)):
            return False
        if len(inner) == 1 and "" not in value and decided_by_type(inner[0]).issuperset(map(type, value)):
            return True
        return not inner or all(fits(v, inner[min(i, len(inner) - 1)]) for i, v in enumerate(value))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind and value != "" if kind in WORDS else None


def _is_record(member: Any) -> bool:
    """Whether it is a tuple of fixed length, unlike `tuple[int, ...]`."""
    return get_origin(member) is tuple and Ellipsis not in get_args(member)


def in_words(hint: Any) -> str:
    """The values that an annotation allows, for a message."""
    words = []
    for member in _members(hint):
        kind, inner = get_origin(member) or member, get_args(member)
        if kind is Literal:
            words += map(str, inner)
        elif kind in LISTS:
            plural = f" of {PLURALS[inner[0]]}" if inner and inner[0] in PLURALS else ""
            words.append(f"a list of {len(inner)}" if _is_record(member) else f"a list{plural}")
        elif member in WORDS:
            words.append(WORDS[member])
    return " or ".join(dict.fromkeys(words))


def argument_faults(content: Mapping[Any, Any], path: str, signature: Signature) -> list[str]:
    """Keys that do not exist, arguments that are missing, values of the wrong type."""
    parameters, needed, open_ended, hints, _ = signature
    faults = []
    for key, value in content.items():
        if key in SPECIAL:
            continue
        if key not in parameters:
            if not open_ended:
                name = content["_target_"].rpartition(".")[2]
                faults.append(
                    f"{path}.{key}={as_text(value)}: {name} has no argument {key}{nearest(str(key), parameters)}; "
                    f"it takes {', '.join(list(parameters)[:SHOWN])}{', ...' if len(parameters) > SHOWN else ''}"
                )
        elif key in hints and not (isinstance(value, str) and ("${" in value or value == "???")):
            hint, default = hints[key], parameters[key].default
            if (type(value) not in decided_by_type(hint) or value == "") and not fits(value, hint):
                known = default is not inspect.Parameter.empty and default is not UNREAD
                cure = f"use {as_text(default)}, the default" if known else "see its yaml file"
                faults.append(f"{path}.{key}={as_text(value)} must be {in_words(hint)}; {cure}")
    if not content.get("_partial_", False):
        for name in needed:
            if name not in content:
                faults.append(f"{path}.{name} is missing, and {content['_target_']} needs it; set {path}.{name}=...")
    return faults
