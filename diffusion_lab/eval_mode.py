"""Eval mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import nn


class Modules(Protocol):
    """A module, or what stands for one."""

    def modules(self) -> Iterator[nn.Module]: ...
    def eval(self) -> Any: ...


@contextmanager
def eval_mode(module: Modules) -> Iterator[None]:
    """Eval mode inside; the mode of each submodule is restored, so a part that is frozen in eval mode stays so."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:  # a module comes before those inside it, which its `train` sets too
            if part.training != training:
                part.train(training)
