"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def modules_of_the_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test imported from a temporary folder; the next test may have another of that name."""
    before = set(sys.modules)
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - before:
        if _file(name).startswith(base):
            del sys.modules[name]


def _file(name: str) -> str:
    return str(Path(getattr(sys.modules[name], "__file__", None) or "."))
