"""The class or function that a dotted name stands for, from the source: modules are parsed and not imported."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import diffusion_lab

PACKAGE = Path(diffusion_lab.__file__).resolve().parent


@dataclass(frozen=True)
class Definition:
    """A class or function in its file.

    Attributes:
        module: dotted name of the module that defines it.
        node: its syntax tree.
        folders: of the user's own modules, in which its bases are searched too.
    """

    module: str
    node: ast.ClassDef | ast.FunctionDef
    folders: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The dotted name of the definition itself, whatever package exports it."""
        return f"{self.module}.{self.node.name}"

    def docstring(self) -> str:
        """Its own docstring, without indentation; "" without one."""
        return ast.get_docstring(self.node) or ""

    def module_docstring(self) -> str:
        """The docstring of its module."""
        file = _file(self.module, self.folders)
        return ast.get_docstring(_tree(file)) or "" if file else ""

    def lineage(self) -> Iterator[Definition]:
        """Itself and the classes that it extends, as far as their source is at hand, nearest first."""
        yield self
        for base in self.node.bases if isinstance(self.node, ast.ClassDef) else ():
            if isinstance(base, ast.Name) and (found := _in_module(self.module, base.id, self.folders)):
                yield from found.lineage()

    def arguments(self) -> dict[str, str]:
        """Constructor's or function's arguments by name, with their defaults as written; "" for those without."""
        for one in self.lineage():
            function = one.node if isinstance(one.node, ast.FunctionDef) else _constructor(one.node)
            if function is not None:
                return _arguments(function)
        return {}


def find(target: str, folders: Sequence[Path] = ()) -> Definition | None:
    """The definition of `package.module.Name`; None if its source is neither in the package nor in the folders.

    Args:
        target: dotted name; a package that re-exports the name is followed to the module that defines it.
        folders: with the user's own modules.
    """
    module, _, name = target.rpartition(".")
    return _in_module(module, name, tuple(folders)) if module else None


def _in_module(module: str, name: str, folders: tuple[Path, ...]) -> Definition | None:
    file = _file(module, folders)
    for node in _tree(file).body if file else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return Definition(module, node, folders)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _in_module(_absolute(node, module, file), alias.name, folders)
    return None


def _absolute(node: ast.ImportFrom, module: str, file: Path | None) -> str:
    """The module that `from .. import` names."""
    if not node.level:
        return node.module or ""
    up = node.level - (file is not None and file.name == "__init__.py")
    parts = module.split(".")[: len(module.split(".")) - up]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _file(module: str, folders: tuple[Path, ...]) -> Path | None:
    """The source of a module of the package or of the user's folders; others, as torch, are not searched."""
    parts = module.split(".")
    roots = (PACKAGE.parent,) if parts[0] == PACKAGE.name else folders
    for root in roots:
        for path in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
            if path.is_file():
                return path
    return None


@functools.cache
def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text())
    except (OSError, SyntaxError, ValueError):  # a file of the user's that cannot be read says nothing
        return ast.Module([], [])


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _arguments(function: ast.FunctionDef) -> dict[str, str]:
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    pairs = [*zip(plain, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return {one.arg: ast.unparse(value) if value else "" for one, value in pairs if one.arg != "self"}
