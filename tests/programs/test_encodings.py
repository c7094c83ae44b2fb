"""Text files are UTF-8 whatever the locale is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "diffusion_lab").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")])
METHODS = ("read_text", "write_text")


def in_the_locale(source: str) -> Iterator[int]:
    """Lines of calls that open a text file without naming its encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or any(word.arg == "encoding" for word in node.keywords):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        builtin = isinstance(node.func, ast.Name) and name == "open"
        modes = [*node.args[1 if builtin else 0 :][:1], *(word.value for word in node.keywords if word.arg == "mode")]
        mode = next((one.value for one in modes if isinstance(one, ast.Constant) and isinstance(one.value, str)), None)
        is_text = mode is not None and set(mode) <= set("rwaxt+")
        method = isinstance(node.func, ast.Attribute)  # `files.read_text` is a function of ours
        if (
            name in METHODS
            and method
            and not (name == "read_text" and node.args)  # its first argument is the encoding
            or (builtin and (is_text or not modes))
            or (name == "open" and method and is_text)
        ):
            yield node.lineno


def test_no_text_file_is_opened_in_the_encoding_of_the_locale():
    found = [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in in_the_locale(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("path.read_text()", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.read_text('utf-8')", False),
        ("open(path)", True),
        ("open(path, 'w')", True),
        ("open(path, 'wb')", False),
        ("path.open('a')", True),
        ("path.open('rb')", False),
        ("Image.open(path)", False),
        ("open(path, 'w', encoding='utf-8')", False),
    ],
)
def test_the_scan_sees_both_kinds(source, wrong):
    assert bool([*in_the_locale(source)]) is wrong
