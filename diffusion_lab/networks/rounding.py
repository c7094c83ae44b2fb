"""The parts of a network that stay in float32 while autocast computes the others in bfloat16 or float16.

The first layer reads x_t, whose noise at small t is smaller than the rounding of the image to 8 bits; the last writes
the prediction. Both have few channels on one side, so that they cost next to nothing. Without autocast nothing changes.

The last layer in float32 is also in improved-diffusion's `UNetModel` (`convert_to_fp16` leaves `self.out` out), the
first is not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def unrounded(layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
    """layer(x), under autocast in the type of the layer's weight, which is float32 then."""
    if not _lowered(x):
        return layer(x)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.to(layer.weight.dtype))


def rounded(x: Tensor) -> Tensor:
    """x, under autocast in the type in which it computes."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if _lowered(x) else x


def _lowered(x: Tensor) -> bool:
    """Whether autocast lowers what is computed from x; there is none on PyTorch's `meta` device.

    `torch.amp.is_autocast_available` would ask for that, but torch.compile breaks its graph there.
    """
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)
