"""Weights of a module by name: overwritten for a while, moved along a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]


@contextmanager
def borrowed(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """A copy of the state dict; what is written to the module inside is undone at the end, bit for bit."""
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        yield kept
    finally:
        write(module, kept)


def write(module: nn.Module, weights: Weights) -> None:
    """Copy these weights into the module; what is not among them stays."""
    live = module.state_dict()
    with torch.no_grad():
        for name, value in weights.items():
            live[name].copy_(value)


@contextmanager
def doubled(module: nn.Module) -> Iterator[None]:
    """Floating-point weights are float64 inside, and the very same tensors as before afterwards."""
    held = [value for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()]
    before = [value.data for value in held]
    try:
        for value in held:
            value.data = value.data.double()
        yield
    finally:
        for value, data in zip(held, before, strict=True):
            value.data = data


def between(module: nn.Module, a: Weights, b: Weights, alpha: float) -> dict[str, Tensor]:
    """theta = alpha a + (1 - alpha) b for every parameter.

    A buffer follows only as far as 0 <= alpha <= 1, because beyond its ends a running variance could be negative; a
    buffer of integers is that of the nearer end.
    """
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    inside = min(max(alpha, 0.0), 1.0)

    def one(name: str) -> Tensor:
        if not a[name].is_floating_point():
            return a[name] if alpha >= 0.5 else b[name]
        part = alpha if name in parameters else inside
        return part * a[name] + (1 - part) * b[name]

    return {name: one(name) for name in a}
