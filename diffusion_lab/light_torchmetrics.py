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
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

NAME = "torchmetrics"
# Name -> modules that are imported for it, in this order; it stands in the last.
CHEAP = {
    "Metric": ("torchmetrics.utilities", "torchmetrics.metric"),
    "__version__": ("torchmetrics.__about__",),
    "MetricCollection": ("torchmetrics.utilities", "torchmetrics.metric", "torchmetrics.collections"),
}


class _Deferred(ModuleType):
    """The package torchmetrics before its `__init__` has run, which then runs in this very module."""

    def __getattr__(self, name: str) -> Any:
        if name in CHEAP:
            value = None
            for module in CHEAP[name]:
                value = vars(import_module(module)).get(name)
            self.__dict__[name] = value  # found without this method from now on
            return value
        if name == "_logger":  # which the modules in CHEAP ask for
            return import_module("logging").getLogger(NAME)
        if name.startswith("__"):  # what Python's import asks of any module
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore  # from here on an ordinary module, also while it runs
        spec = self.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)


def defer() -> None:
    """From now on torchmetrics executes its `__init__` when it is needed; without effect where it is imported."""
    spec = None if NAME in sys.modules else find_spec(NAME)
    if spec is not None:
        module = sys.modules[NAME] = module_from_spec(spec)
        module.__class__ = _Deferred
