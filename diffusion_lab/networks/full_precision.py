"""The layers of a network that stay in float32 while autocast computes the others in bfloat16 or float16.

The first layer reads x_t, whose noise at small t is only a few times as large as bfloat16's steps (sigma_0 = 0.01 with
the linear schedule; numbers between 1/2 and 1 are 2^-8 = 0.004 apart); the last one writes the prediction. Both have
few channels on one side, so that they cost next to nothing. Without autocast nothing changes.

As in improved-diffusion's `UNetModel.convert_to_fp16` the last layer is left out. Differs from it: the first layer is
left out as well, because that lowers the error of the gradient as much (benchmarks/lines/rounding.py); and the last
norm and its SiLU are not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def in_full_precision(layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
    """layer(x), under autocast in the type of the layer's weight, which is float32.

    Args:
        layer: a convolution, x (B,C,H,W), or an affine map, x (...,C).
        x: of any type under autocast, else of the weight's.
    """
    if not _is_lowered(x):
        return layer(x)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.to(layer.weight.dtype))


def to_autocast_type(x: Tensor) -> Tensor:
    """x of any shape, under autocast in the type that it computes in: what follows a layer in full precision."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if _is_lowered(x) else x


def _is_lowered(x: Tensor) -> bool:
    """Whether autocast lowers what is computed from x; there is none on PyTorch's `meta` device.

    `torch.amp.is_autocast_available` would ask for that, but torch.compile breaks its graph there.
    """
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)
