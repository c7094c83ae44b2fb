"""Scale: how costs grow with the number of images, and of what else has a file `benchmarks/scale_*.py`.

Each such file has `lines()` and says in its docstring what it measures, on data that it generates. An exponent of 1 is
a cost in proportion.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import benchmarks
from benchmarks.table import Line


def lines() -> Iterator[Line]:
    for module in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda module: module.name):
        if module.name.startswith("scale_"):
            yield from importlib.import_module(f"benchmarks.{module.name}").lines()
