"""Random directions in the space of a module's weights, filter by filter as long as the weights themselves.

A filter is a slice of a parameter along its first dimension; parameters with fewer than two dimensions (biases,
normalisations) do not move. Each filter d of a direction is Gaussian, rescaled to |d| = |theta| (Li et al.,
"Visualizing the loss landscape of neural nets", 2018, section 4): a step of 1 is as long as the filter itself.

Differs from Li et al.: the second direction is made orthogonal to the first within each filter *before* the rescaling,
which keeps the angle in every filter. Whole directions that are orthogonal before the rescaling are not after it, and
orthogonalising them afterwards would change the filters' lengths. A filter of one number has no second direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from diffusion_lab.analyses.weights import Weights

TINY = 1e-10  # of Li et al.; a filter of zeros stays zero
FILTER_DIMS = 2  # fewest dimensions of a parameter with filters


def directions(module: nn.Module, normal: Callable[..., Tensor]) -> tuple[Weights, Weights]:
    """Two orthogonal directions.

    Args:
        module: holds the weights that they are as long as.
        normal: `work.normal`; called with a shape, the number of the direction and that of the parameter.
    """
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
