"""Search for numbers that are not finite in nested containers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.failure import Failure


class NotFinite(Failure):
    """A number that training depends on became NaN or infinite."""


def not_finite(tree: Any, allowed: Collection[str] = ()) -> str | None:
    """The dotted name of the first number that is not finite in nested containers of tensors and floats, or None.

    The host waits once per device, after all of its tensors have been checked.

    Args:
        tree: dicts, lists and tuples of anything; values that are neither a tensor nor a float are ignored.
        allowed: entries with one of these names may hold NaN and infinities.
    """
    names, flags = [], []
    for name, value in _numbers(tree, "", frozenset(allowed)):
        names.append(name)
        flags.append(torch.isfinite(value).all() if isinstance(value, Tensor) else torch.tensor(math.isfinite(value)))
    by_device: dict[torch.device, list[int]] = {}
    for i, flag in enumerate(flags):
        by_device.setdefault(flag.device, []).append(i)
    wrong = [
        i
        for rows in by_device.values()
        for i, fine in zip(rows, torch.stack([flags[i] for i in rows]).tolist(), strict=True)
        if not fine
    ]
    return names[min(wrong)] if wrong else None


def _numbers(tree: Any, name: str, allowed: frozenset[str]) -> Iterator[tuple[str, Tensor | float]]:
    if isinstance(tree, Tensor):
        if tree.is_floating_point() or tree.is_complex():
            yield name, tree.detach()
    elif isinstance(tree, float):
        yield name, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            if key not in allowed:
                yield from _numbers(value, f"{name}.{key}".lstrip("."), allowed)
    elif isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        for i, value in enumerate(tree):
            yield from _numbers(value, f"{name}[{i}]", allowed)
