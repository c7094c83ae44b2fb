"""Each package imports only what stands above it in CONTRIBUTING's tree, and no two files import one another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "diffusion_lab"
LAUNCHER = ROOT / "hydra_plugins" / "diffusion_lab_launcher"


def tree() -> list[str]:
    """Packages and files of `diffusion_lab/` in the order of CONTRIBUTING's tree."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = text.split("    diffusion_lab/\n")[1].split("    hydra_plugins/")[0]
    return [name.removesuffix(".py") for name in re.findall(r"^      (\w+(?:\.py)?)/? ", block, re.MULTILINE)]


def modules() -> dict[str, Path]:
    """Dotted name -> file, below the package and of the launcher; a package's name stands for its `__init__.py`."""
    found = {}
    for path in [*PACKAGE.rglob("*.py"), *LAUNCHER.glob("*.py")]:
        parts = path.relative_to(PACKAGE if PACKAGE in path.parents else ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names below the package that a file imports anywhere, also for types and inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_below(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (_below(f"{node.module}.{name.name}") for name in node.names)


def _below(name: str) -> str:
    return name.removeprefix("diffusion_lab.")


def upward(files: Mapping[str, str], order: list[str]) -> list[str]:
    """Imports of something that does not stand above, as `package: import`. `files`: dotted name -> source."""
    return [
        f"{name}: {imported}"
        for name, source in files.items()
        if (own := name.split(".")[0]) in order
        for imported in imports(ast.parse(source))
        if (other := imported.split(".")[0]) in order and order.index(other) > order.index(own)
    ]


def circles(files: Mapping[str, str]) -> list[str]:
    """Modules that import themselves by way of others; a package's `__init__.py`, which only re-exports, is no way."""
    trees = {name: ast.parse(source) for name, source in files.items()}
    edges = {name: {_module(one, files) for one in imports(tree)} - {name} for name, tree in trees.items()}
    left = dict(edges)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    behind = dict(left)  # what only leads to a circle is none
    while ends := [name for name in behind if not any(name in edges[other] for other in behind)]:
        for name in ends:
            del behind[name]
    return sorted(behind)


def _module(imported: str, files: Mapping[str, str]) -> str:
    """The file that an import executes; a class's name at the end is no file."""
    return imported if imported in files else imported.rpartition(".")[0]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {name: path.read_text() for name, path in modules().items() if path.name != "__init__.py"}


def test_the_tree_names_every_package_and_file() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__"} == set(tree())
    assert len(tree()) == len(set(tree()))


def test_nothing_is_imported_from_below(sources: dict[str, str]) -> None:
    assert upward(sources, tree()) == []


def test_no_two_files_import_one_another(sources: dict[str, str]) -> None:
    assert circles(sources) == []


def test_a_wrong_import_would_be_seen(sources: dict[str, str]) -> None:
    wrong = sources["diffusion.schedule"] + "\n\ndef f():\n    from diffusion_lab.timesteps import Uniform\n"
    assert upward({"diffusion.schedule": wrong}, tree()) == ["diffusion.schedule: timesteps.Uniform"]
    back = sources["diffusion.schedule"] + "\nfrom diffusion_lab.diffusion.schedules import linear\n"
    found = circles(sources | {"diffusion.schedule": back})
    assert {"diffusion.schedule", "diffusion.schedules"} <= set(found)
