"""Conversion between bytes and the model's range.

x = u / 127.5 - 1   for bytes u in 0..255, so 0 -> -1 and 255 -> 1 exactly;   float data pass unchanged
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_float(images: Tensor) -> Tensor:
    """uint8 0..255 -> float32 in [-1, 1]; float images pass unchanged."""
    return images if images.is_floating_point() else images.to(torch.float32).div_(127.5).sub_(1.0)


def to_uint8(images: Tensor) -> Tensor:
    """Inverse of `to_float`: float in [-1, 1] -> uint8 0..255, rounded and clamped."""
    return images.to(torch.float32).add(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)


def check_range(images: Tensor, name: str, value_range: tuple[float, float] | None) -> None:
    """Raise ValueError if the first batch is neither bytes nor float32 in the range of its source.

    Args:
        images: the batch.
        name: name of the source, for the message.
        value_range: smallest and largest value of float images; None: any.
    """
    low, high = (float(value) for value in images.aminmax())
    if images.dtype == torch.uint8:
        if high <= 1:
            raise ValueError(
                f"source={name} must give bytes 0..255, but the first batch lies in {low:g}..{high:g}; "
                "multiply images in 0..1 by 255 before they become bytes"
            )
    elif value_range and not (low >= value_range[0] and high <= value_range[1]):
        raise ValueError(
            f"source={name} must give values in {list(value_range)}, but the first batch lies in "
            f"[{low:g}, {high:g}]; scale the images or declare another value_range"
        )
