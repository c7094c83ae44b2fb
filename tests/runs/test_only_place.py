"""No module outside `diffusion_lab.runs` spells a name of a run folder, appends lines, or reads them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import diffusion_lab
from diffusion_lab.runs import names

PACKAGE = Path(diffusion_lab.__file__).parent
NAMES = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str) and "." in value]
MODULES = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "hydra_plugins").rglob("*.py")]
MODULES = [path for path in MODULES if PACKAGE / "runs" not in path.parents]


def faults(source: str) -> Iterator[str]:
    """What a module does that only `runs` may do; docstrings and comments may name files."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from (f"line {node.lineno} spells {name}" for name in NAMES if name in node.value)
        if isinstance(node, ast.Call) and _called(node) == "open":
            modes = [*node.args, *(word.value for word in node.keywords)]
            if any(isinstance(mode, ast.Constant) and mode.value in ("a", "ab", "a+", "at") for mode in modes):
                yield f"line {node.lineno} appends"
        if isinstance(node, ast.Attribute) and node.attr == "O_APPEND":
            yield f"line {node.lineno} appends"
        if isinstance(node, ast.For | ast.ListComp | ast.GeneratorExp):
            calls = {_called(inner) for inner in ast.walk(node) if isinstance(inner, ast.Call)}
            if calls >= {"loads"} and calls & {"split", "splitlines"}:
                yield f"line {node.lineno} reads lines"


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def test_run_folders_are_known_in_one_place() -> None:
    assert len(NAMES) >= 12 and len(MODULES) > 200
    found = {path: list(faults(path.read_text())) for path in MODULES}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('path = folder / "run.json"', "line 1 spells run.json"),
        ('path = f"{folder}/checkpoints/last.ckpt"', "line 1 spells last.ckpt"),
        ('with open(path, "a") as file:\n    file.write(line)', "line 1 appends"),
        ('path.open(mode="ab")', "line 1 appends"),
        ("os.open(path, os.O_WRONLY | os.O_APPEND)", "line 1 appends"),
        ("rows = [json.loads(line) for line in text.splitlines()]", "line 1 reads lines"),
        ('for line in text.split("\\n"):\n    rows.append(json.loads(line))', "line 1 reads lines"),
    ],
)
def test_a_second_place_is_noticed(source: str, fault: str) -> None:
    assert fault in list(faults(source))


def test_prose_may_name_a_file() -> None:
    assert list(faults('"""Writes metrics.jsonl."""\nx = 1  # run.json\nwith open(path, "w") as file:\n    pass')) == []
