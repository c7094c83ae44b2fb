"""The signature of a class or function as its source has it, for checks that import nothing.

An annotation is evaluated by itself: names of the language, of `typing` and `collections.abc`, aliases and classes of
the module, followed through imports. A class stands for its values as in `annotations.py`, which cannot decide them
either. What is written in another way leaves the argument undecided, and the later check decides.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import functools
import inspect
import typing
from pathlib import Path
from typing import Any, Union

from diffusion_lab.cli.checks.annotations import UNREAD, Signature
from diffusion_lab.cli.definitions import Function, Imported, find, lookup

LANGUAGE = {name: getattr(builtins, name) for name in ("int", "float", "bool", "str", "list", "tuple", "dict")}
VOCABULARIES = {"typing": typing, "collections.abc": collections.abc}
CLASSES = {("torch", "Tensor")}  # of libraries, whose aliases look like classes


class Undecided(Exception):
    """The source does not say it in a form that is read here."""


@functools.cache
def source_signature(
    target: str, folders: tuple[Path, ...] = (), only: frozenset[str] | None = None
) -> Signature | None:
    """The signature of `package.module.Name`, as `annotations.described` finds it after an import.

    Args:
        target: dotted name.
        folders: with the user's own modules.
        only: the arguments whose annotations and defaults are read; None: all.

    Returns:
        None if the source is not at hand or has no constructor. An argument that is not decided has no hint.
    """
    definition = find(target, folders)
    function = definition.function() if definition is not None else None
    if function is None:
        return Signature({}, [], False, {}, None) if definition is not None and definition.takes_nothing() else None
    parameters, hints = {}, {}
    for argument, default in function.pairs():
        kind, read = inspect.Parameter.KEYWORD_ONLY, only is None or argument.arg in only
        value = UNREAD if default is not None and not read else _default(default, function)
        parameters[argument.arg] = inspect.Parameter(argument.arg, kind, default=value)
        try:
            if read and argument.annotation is not None:
                hints[argument.arg] = value_of(argument.annotation, function)
        except Undecided:
            continue
    needed = [name for name, one in parameters.items() if one.default is one.empty]
    return Signature(parameters, needed, function.node.args.kwarg is not None, hints, None)


def _default(expression: ast.expr | None, function: Function) -> Any:
    """The default; UNREAD where it is computed."""
    if expression is None:
        return inspect.Parameter.empty
    try:
        return _plain_or(expression, function)
    except Undecided:
        return UNREAD


def _plain_or(expression: ast.expr, place: Function) -> Any:
    """A plain value of Python, else what the expression stands for."""
    try:
        return ast.literal_eval(expression)
    except ValueError:
        return value_of(expression, place)


def value_of(node: ast.expr, place: Function) -> Any:
    """The value of an annotation or a default in the module of a function; Undecided if it is written in a way that is
    not read here."""
    if isinstance(node, ast.Constant):
        return value_of(_parsed(node.value), place) if isinstance(node.value, str) else node.value
    if isinstance(node, ast.Name):
        return _named(place.module, node.id, place)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[value_of(node.left, place), value_of(node.right, place)]  # noqa: UP007  a union of objects
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand, place)
    if isinstance(node, ast.Tuple | ast.List):
        return [value_of(one, place) for one in node.elts]
    if isinstance(node, ast.Subscript):
        return _subscripted(node, place)
    raise Undecided


def _subscripted(node: ast.Subscript, place: Function) -> Any:
    outer = value_of(node.value, place)
    if outer is typing.Annotated:  # of a place (`cli.path_arguments`), whose values are those of its type
        return value_of(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice, place)
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    literal = outer is typing.Literal
    values = [ast.literal_eval(one) if literal else value_of(one, place) for one in inside]
    try:
        return outer[tuple(values) if len(values) > 1 else values[0]]
    except TypeError as error:  # a class of another module with type arguments
        raise Undecided from error


def _named(module: str, name: str, place: Function) -> Any:
    """What a name stands for in a module."""
    found = lookup(module, name, place.folders)
    if found is None and name in LANGUAGE:
        return LANGUAGE[name]
    if isinstance(found, Imported):
        if (found.module, found.name) == ("pathlib", "Path"):
            return Path
        if (found.module, found.name) in CLASSES:
            return _class(found.name)
        if found.module in VOCABULARIES:
            return getattr(VOCABULARIES[found.module], found.name)
        return _named(found.module, found.name, place)
    if isinstance(found, ast.ClassDef):
        return _class(name)
    if isinstance(found, ast.expr):
        return _plain_or(found, Function(module, place.node, place.folders))
    raise Undecided


@functools.cache
def _class(name: str) -> type:
    """A class that stands for one that is not imported."""
    return type(name, (), {})


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise Undecided from error
