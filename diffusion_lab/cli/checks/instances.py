"""What a part is given as an argument must be what its annotation says: a solver where a solver stands."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Union, get_args, get_origin

from hydra.utils import instantiate
from omegaconf import DictConfig

from diffusion_lab.cli.checks.signatures import hints_of


def build(node: DictConfig) -> Any:
    """`instantiate`, which looks at the finished arguments before it calls.

    Raises:
        ValueError: an argument is of another class than its annotation.
    """
    made = instantiate(node, _partial_=True, _convert_="all")
    if not isinstance(made, functools.partial):
        return made
    hints = hints_of(made.func)
    for key, value in made.keywords.items():
        classes = _classes(hints.get(key, Any))
        if classes and not isinstance(value, classes):
            names = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in classes)
            raise ValueError(f"{key}={_shown(value)} must be of the class {names}; leave it out")
    return made if node.get("_partial_") else made()


@functools.cache
def _classes(hint: Any) -> tuple[type, ...]:
    """The classes of an annotation that names parts; empty where a yaml value may stand, or nobody can tell."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    known = all(inspect.isclass(member) and get_origin(member) is None and member is not Any for member in members)
    if not known or all(_is_plain(member) for member in members if member is not types.NoneType):
        return ()
    return () if any(getattr(member, "_is_protocol", False) for member in members) else members


def _is_plain(kind: type) -> bool:
    """Values of yaml, and what is made of one, such as a path."""
    return kind.__module__ in ("builtins", "pathlib", "os", "numbers")


def _shown(value: Any) -> str:
    return "null" if value is None else type(value).__name__ if hasattr(value, "__dict__") else str(value)
