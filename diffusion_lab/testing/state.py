"""State of a module as in a checkpoint, and bitwise equality."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def state_of(module: nn.Module) -> dict:
    """A deep copy of everything that a checkpoint would have."""
    return copy.deepcopy(dict(module.state_dict()))


def same(a: object, b: object) -> bool:
    """Bitwise equality of dicts, lists and tensors."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
