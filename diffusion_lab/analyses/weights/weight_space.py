"""Points and directions in the space of a module's weights, by name.

A filter is a slice of a parameter along its first dimension; parameters with fewer than two dimensions (biases,
normalisations) do not move. Each filter d of a random direction is Gaussian, rescaled to |d| = |theta| (Li et al.,
"Visualizing the loss landscape of neural nets", 2018, section 4): a step of 1 is as long as the filter itself.

Differs from Li et al.: the second direction is made orthogonal to the first within each filter *before* the rescaling,
which keeps the angle in every filter. Whole directions that are orthogonal before the rescaling are not after it, and
orthogonalising them afterwards would change the filters' lengths. A filter of one number has no second direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]
TINY = 1e-10  # of Li et al.; a filter of zeros stays zero
FILTER_DIMS = 2  # fewest dimensions of a parameter with filters


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


def directions(module: nn.Module, normal: Callable[..., Tensor]) -> tuple[Weights, Weights]:
    """Two orthogonal directions, from `work.normal` of a shape, the number of the direction and of the parameter."""
    first, second = {}, {}
    for number, (name, parameter) in enumerate(module.named_parameters()):
        if parameter.ndim < FILTER_DIMS:
            continue
        weights = parameter.detach().flatten(1)
        one, other = (normal(tuple(weights.shape), j, number).to(weights) for j in range(2))
        share = (one * other).sum(1, keepdim=True) / one.square().sum(1, keepdim=True)
        other = torch.zeros_like(other) if weights.shape[1] == 1 else other - share * one
        for direction, drawn in ((first, one), (second, other)):
            length = weights.norm(dim=1, keepdim=True) / (drawn.norm(dim=1, keepdim=True) + TINY)
            direction[name] = (length * drawn).view_as(parameter)
    return first, second


def cosine(one: Weights, other: Weights) -> float:
    """Of the angle between two directions, over all parameters."""
    product = sum(float((value.double() * other[name].double()).sum()) for name, value in one.items())
    lengths = [sum(float(value.double().square().sum()) for value in some.values()) ** 0.5 for some in (one, other)]
    return product / max(lengths[0] * lengths[1], TINY)


def displaced(start: Weights, ways: Sequence[Weights], distances: Sequence[float]) -> dict[str, Tensor]:
    """start + sum_j distance_j way_j, for the parameters that move."""
    return {name: start[name] + sum(d * way[name] for d, way in zip(distances, ways, strict=True)) for name in ways[0]}
