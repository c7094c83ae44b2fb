"""`import torchmetrics` that costs what is used of it.

Lightning asks torchmetrics for two classes, `Metric` and `MetricCollection`. The package's own `__init__` imports every
metric that it has for them, and with these SciPy's signal processing and torchvision: as much time as PyTorch itself
takes, in each process, and this project uses none of it. `defer` therefore leaves `__init__` unexecuted until one
asks for another name: `torchmetrics.Accuracy`, `from torchmetrics import functional`. What is imported then is what
Python would have imported, from the same file, once.

Differs from `importlib.util.LazyLoader`: two names are known without the rest, because Lightning asks for them at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "torchmetrics"
# Name -> modules that are imported for it, in this order; it stands in the last.
CHEAP = {
    "Metric": ("torchmetrics.utilities", "torchmetrics.metric"),
    "MetricCollection": ("torchmetrics.utilities", "torchmetrics.metric", "torchmetrics.collections"),
}


class _Deferred(ModuleType):
    """The package torchmetrics before its `__init__` has run, which then runs in this very module."""

    def __getattr__(self, name: str) -> Any:
        if name in CHEAP:
            return getattr([import_module(module) for module in CHEAP[name]][-1], name)
        if name == "_logger":  # which the modules in CHEAP ask for
            return import_module("logging").getLogger(NAME)
        if name.startswith("__"):  # what Python's import asks of any module
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore  # from here on an ordinary module, also while it runs
        spec = self.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.whole.exec_module(self)  # type: ignore[attr-defined]
        return getattr(self, name)


class _Deferring(Loader):
    """Makes the module without executing it; `whole` is Python's own loader."""

    def __init__(self, whole: Loader) -> None:
        self.whole = whole

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Deferred


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Deferring(spec.loader)
        return spec


def defer() -> None:
    """From now on torchmetrics executes its `__init__` when it is needed; without effect where it is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
