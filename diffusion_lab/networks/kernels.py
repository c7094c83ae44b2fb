"""For which device the layers choose PyTorch's kernels: that of their input, unless `as_on_gpu` is entered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_elsewhere = False  # read at every call of a layer; a plain name, which torch.compile can follow


def bfloat16_on_cpu(x: Tensor) -> bool:
    """Whether x is computed in bfloat16 by PyTorch's kernels of a CPU, some of which are slower than those of float32.

    Not under torch.compile, which makes its own kernels, and whose graph would break at some of the replacements.
    """
    if torch.compiler.is_compiling():
        return False
    return x.dtype == torch.bfloat16 and x.device.type == "cpu" and not _elsewhere


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Choose kernels as on a GPU for tensors of the CPU: to estimate the memory of a GPU without one."""
    global _elsewhere
    before, _elsewhere = _elsewhere, True
    try:
        yield
    finally:
        _elsewhere = before
