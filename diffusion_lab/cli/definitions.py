"""The class or function that a dotted name stands for, from the source: modules are parsed and not imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import diffusion_lab

LIBRARIES = ("torch", "lightning")  # those of `_target_`s besides this package
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

    def constants(self) -> dict[str, Any]:
        """Attributes of the class and of those that it extends whose values are written out, `frozenset({..})` too."""
        found: dict[str, Any] = {}
        for one in self.lineage():
            for node in one.node.body:
                if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                    continue
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name, value in _assigned(target, node.value):
                        found.setdefault(name, value)
        return found

    def docstring(self) -> str:
        """Its own docstring, without indentation; "" without one."""
        return ast.get_docstring(self.node) or ""

    def lineage(self) -> Iterator[Definition]:
        """Itself and the classes that it extends, as far as their source is at hand, nearest first."""
        yield self
        for base in self.node.bases if isinstance(self.node, ast.ClassDef) else ():
            if found := self.base(base):
                yield from found.lineage()

    def base(self, expression: ast.expr) -> Definition | None:
        """The class that is extended; None if it is not named by one word or its source is not at hand."""
        return _in_module(self.module, expression.id, self.folders) if isinstance(expression, ast.Name) else None

    def arguments(self) -> dict[str, str]:
        """Constructor's or function's arguments by name, with their defaults as written; "" for those without."""
        found = self.function()
        return {} if found is None else {one.arg: ast.unparse(value) if value else "" for one, value in found.pairs()}

    def function(self) -> Function | None:
        """The function itself, or the constructor; None for a class whose constructor is not written out."""
        for one in self.lineage():
            if isinstance(one.node, ast.FunctionDef):
                return Function(one.module, one.node, self.folders)
            if one.node.decorator_list:  # a dataclass has a constructor that is not written out
                return None
            for node in one.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    return Function(one.module, node, self.folders)
        return None

    def takes_nothing(self) -> bool:
        """Whether it is a class without a constructor, in a lineage whose source is at hand to the end."""
        for one in self.lineage():
            if not isinstance(one.node, ast.ClassDef) or one.node.decorator_list or one.function() is not None:
                return False
            if not all(one.base(base) or ast.unparse(base) == "ABC" for base in one.node.bases):
                return False
        return True


@dataclass(frozen=True)
class Function:
    """A function, or a constructor, in its file."""

    module: str
    node: ast.FunctionDef
    folders: tuple[Path, ...] = ()

    def pairs(self) -> list[tuple[ast.arg, ast.expr | None]]:
        """Its arguments but `self`, *args and **kwargs, each with its default, None for those without."""
        args = self.node.args
        plain = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
        pairs = [*zip(plain, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        return [(one, value) for one, value in pairs if one.arg != "self"]


def find(target: str, folders: Sequence[Path] = ()) -> Definition | None:
    """The definition of `package.module.Name`; None if its source is neither in the package nor in the folders.

    Args:
        target: dotted name; a package that re-exports the name is followed to the module that defines it.
        folders: with the user's own modules.
    """
    module, _, name = target.rpartition(".")
    return _in_module(module, name, tuple(folders)) if module else None


def lost(target: str, folders: Sequence[Path] = ()) -> str:
    """Why `find` has nothing for a class of the user's own; "" for another."""
    module, _, name = target.rpartition(".")
    if not module or module.partition(".")[0] in (PACKAGE.name, *LIBRARIES):
        return ""
    file = _file(module, tuple(folders))
    if file is None:
        return f"there is no {module.replace('.', '/')}.py in the working folder, or in or beside a --config-dir"
    try:
        ast.parse(file.read_bytes())
    except SyntaxError as error:
        return f"{file} line {error.lineno} is no Python: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{file} cannot be read: {error}"
    return f"{file} has no class or function {name}"


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Any]]:
    """Names and values of an assignment, of `a, b = 1, 2` as well; without those that have to be computed."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, part)
    elif isinstance(target, ast.Name):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "frozenset":
            value = value.args[0] if len(value.args) == 1 else value
        try:
            yield target.id, ast.literal_eval(value)
        except ValueError:
            return


def _in_module(module: str, name: str, folders: tuple[Path, ...]) -> Definition | None:
    found = lookup(module, name, folders)
    if isinstance(found, Imported):
        return _in_module(found.module, found.name, folders)
    return Definition(module, found, folders) if isinstance(found, ast.ClassDef | ast.FunctionDef) else None


class Imported(NamedTuple):
    """A name that a module takes from another."""

    module: str
    name: str


def lookup(
    module: str, name: str, folders: tuple[Path, ...]
) -> ast.ClassDef | ast.FunctionDef | ast.expr | Imported | None:
    """What a name at the top of a module stands for: a class, function, value or import; None if it is not found."""
    file, names = _module(module, folders)
    found = names.get(name)
    if isinstance(found, tuple):
        return Imported(_absolute(found[0], module, file), found[1])
    return found


@functools.cache
def _module(module: str, folders: tuple[Path, ...]) -> tuple[Path | None, dict[str, Any]]:
    """The file of a module and what the names at its top stand for, those under `if TYPE_CHECKING:` too; of several,
    the first. An imported name has its statement and its name there."""
    found: dict[str, Any] = {}
    file = _file(module, folders)
    statements = list(_tree(file).body) if file else []
    for node in statements:  # grows by the bodies of conditions
        if isinstance(node, ast.If):
            statements += node.body
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.setdefault(node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and node.value is not None:
                    found.setdefault(target.id, node.value)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, (node, alias.name))
    return file, found


def _absolute(node: ast.ImportFrom, module: str, file: Path | None) -> str:
    """The module that `from .. import` names."""
    if not node.level:
        return node.module or ""
    up = node.level - (file is not None and file.name == "__init__.py")
    parts = module.split(".")[: len(module.split(".")) - up]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _file(module: str, folders: tuple[Path, ...]) -> Path | None:
    """The source of a module of the package, of the user's folders, or of the libraries that parts may come from."""
    parts = module.split(".")
    roots = (PACKAGE.parent,) if parts[0] == PACKAGE.name else _library(parts[0]) or folders
    for root in roots:
        for path in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
            if path.is_file():
                return path
    return None


@functools.cache
def _library(package: str) -> tuple[Path, ...]:
    """The folder that holds a library, found without importing it; () for other packages."""
    spec = importlib.util.find_spec(package) if package in LIBRARIES else None
    return tuple(Path(place).parent for place in (spec.submodule_search_locations or ())) if spec else ()


@functools.cache
def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # a file of the user's that cannot be read says nothing
        return ast.Module([], [])
