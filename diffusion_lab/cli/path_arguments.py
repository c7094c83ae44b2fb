"""The arguments of parts that name places on the disk, from their signatures; nothing is imported.

A class of this package annotates them (`arguments.ReadPath`, `WrittenPath`, `DownloadPath`), and so may one of the
user's; those of other packages are stated beside the list of what is allowed of them, `targets.NAMES`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.definitions import Definition, Imported, find, lookup
from diffusion_lab.cli.targets import NAMES

MODULE = "diffusion_lab.arguments"
ANNOTATIONS = {"ReadPath": "read", "WrittenPath": "written", "DownloadPath": "downloaded"}


@functools.cache
def path_arguments(target: str, folders: tuple[Path, ...] = ()) -> Mapping[str, str]:
    """{argument: what it names} of the class or function `package.module.Name`.

    "read", "written" and "downloaded" as in `arguments`, and "name": of a file in a folder that another argument names.

    Args:
        target: dotted name.
        folders: with the user's own modules.
    """
    if target in NAMES:
        return NAMES[target].places
    definition = find(target, folders)
    found: dict[str, str] = {}
    for one in reversed([*definition.lineage()] if definition else []):  # a subclass may pass arguments on
        found |= _annotated(one)
    return found


def written_paths(node: Mapping[str, Any], folder: Path, folders: tuple[Path, ...] = ()) -> Iterator[tuple[str, str]]:
    """(argument, value) of each place outside a folder in which the part of a node would write.

    Args:
        node: plain values, with `_target_`.
        folder: the only place in which it may write.
        folders: with the user's own modules.
    """
    for name, kind in path_arguments(str(node.get("_target_")), folders).items():
        value = node.get(name)
        if isinstance(value, str) and (kind == "written" or (kind == "downloaded" and node.get("download") is True)):
            if not is_inside(value, folder):
                yield name, value
        elif isinstance(value, str) and kind == "name" and (Path(value).name != value or value in ("", "..")):
            yield name, value


def read_paths(node: Mapping[str, Any], folders: tuple[Path, ...] = ()) -> Iterator[tuple[str, str]]:
    """(argument, value) of each place from which the part of a node would read, but for the places that the options of
    this package have without anybody's word.

    Args:
        node, folders: as `written_paths`.
    """
    for name, kind in path_arguments(str(node.get("_target_")), folders).items():
        given = node.get(name)
        for value in given if isinstance(given, list) else [given]:
            if kind in ("read", "downloaded") and isinstance(value, str) and value not in _defaults(name):
                yield name, value


@functools.cache
def _defaults(name: str) -> frozenset[str]:
    """The values that the options of this package give to arguments of a name."""
    line = re.compile(rf"^ *{re.escape(name)}: *([^\s#]+)", re.MULTILINE)
    files = (path for path in conf_dir().rglob("*.yaml") if path.parent != conf_dir())  # those are of commands
    return frozenset(value for path in files for value in line.findall(path.read_text("utf-8")))


def is_inside(value: str, folder: Path) -> bool:
    """Whether a path leads to a place in a folder, through links too."""
    try:
        return "://" not in value and Path(value).expanduser().resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a link loop, the home of nobody, a zero byte
        return False


def _annotated(definition: Definition) -> dict[str, str]:
    """The arguments of a function, or of the constructor that a class itself defines, that are annotated as places."""
    body = [definition.node] if isinstance(definition.node, ast.FunctionDef) else definition.node.body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    own = [node for node in functions if node is definition.node or node.name == "__init__"]
    found = {}
    for one in (
        argument for node in own for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    ):
        for name in _words(one.annotation):
            imported = lookup(definition.module, name, definition.folders)
            if isinstance(imported, Imported) and imported.module == MODULE and imported.name in ANNOTATIONS:
                found[one.arg] = ANNOTATIONS[imported.name]
    return found


def _words(annotation: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
