"""Numbers that look random and have a closed form: the same on every machine and version of torch.

u(j, s) = ((12345 + 2 s) j^2 + 6789 j + 1013 s + 7 mod 65537) / 65537 - 1/2,   j = 0, 1, ...
"""

import math

import torch
from torch import Tensor, nn

_PRIME = 65_537


def numbers(shape, seed: int) -> Tensor:
    """Float64 in [-1/2, 1/2) of any shape, j counting in memory order."""
    j = torch.arange(math.prod(shape), dtype=torch.int64) % _PRIME
    u = ((12_345 + 2 * seed) * (j * j % _PRIME) + 6_789 * j + 1_013 * seed + 7) % _PRIME
    return (u.double() / _PRIME - 0.5).reshape(shape)


def fill(network: nn.Module) -> nn.Module:
    """Every parameter from u, s its place among them, no branch near 0: weights of linear maps with variance
    1/(inputs), weights of norms around 1, everything else u itself. In eval mode."""
    seed = 0
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            u = numbers(parameter.shape, seed)
            if name == "weight" and isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
                u = u * math.sqrt(12 / (parameter.numel() / len(parameter)))
            elif name == "weight" and isinstance(module, nn.GroupNorm | nn.LayerNorm):
                u = 1 + u
            with torch.no_grad():
                parameter.copy_(u)
            seed += 1
    return network.eval()
