"""Conversion between bytes and the model's range.

x = u / 127.5 - 1   for bytes u in 0..255, so 0 -> -1 and 255 -> 1 exactly;   float data pass unchanged
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def to_float(images: Tensor) -> Tensor:
    """uint8 0..255 -> float32 in [-1, 1]; float images pass unchanged."""
    return images if images.is_floating_point() else images.to(torch.float32).div_(127.5).sub_(1.0)


def to_uint8(images: Tensor) -> Tensor:
    """Inverse of `to_float`: float in [-1, 1] -> uint8 0..255, rounded and clamped."""
    return images.to(torch.float32).add(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)


class Extremes(NamedTuple):
    """The smallest and the largest value of all images of a set, and whether they are floating-point numbers."""

    low: float
    high: float
    floating: bool = False

    def with_those_of(self, other: Extremes) -> Extremes:
        """Of both sets together."""
        return Extremes(min(self.low, other.low), max(self.high, other.high), self.floating)


def in_unit_range(of: Extremes) -> bool:
    """Whether bytes are 0 and 1, which is what becomes of images in 0..1; images of one value say nothing."""
    return not of.floating and of.low < of.high <= 1


def check_range(of: Extremes, name: str, value_range: tuple[float, float] | None) -> None:
    """Raise ValueError if images are neither bytes nor float32 in the range of their source.

    Args:
        of: the extremes of a whole set, never of a part: most of an image, or of a batch, may be black.
        name: name of the source, for the message.
        value_range: smallest and largest value of float images; None: any.
    """
    if in_unit_range(of):
        raise ValueError(
            f"source={name} must give bytes 0..255, but all images lie in 0..1; multiply images in 0..1 by 255 before "
            "they become bytes"
        )
    if of.floating and value_range and not (of.low >= value_range[0] and of.high <= value_range[1]):
        cure = "scale the images" if value_range != (-1.0, 1.0) or of.low < 0 else f"{_scaled(of)},"
        raise ValueError(
            f"source={name} must give values in {list(value_range)}, but the images lie in [{of.low:g}, {of.high:g}]; "
            f"{cure} or declare another value_range"
        )


def doubts(
    which: str, count: int, equal: bool, of: Extremes | None, bounds: tuple[float, float] | None = (-1.0, 1.0)
) -> list[str]:
    """What is valid in images and most likely a mistake, a sentence each.

    Args:
        which: what images they are, such as "training images of digits".
        count: their number.
        equal: whether all are known to be the same one.
        of: their extremes; None if these are not known.
        bounds: smallest and largest value of the model's images; None: any.
    """
    found = [f"all {count} {which} are equal; check the files"] if equal else []
    if bounds and of is not None and bounds[0] < 0 and of.floating and of.low >= 0 and of.high > 0:
        lie = f"the {which} lie in {of.low:g}..{of.high:g}"
        found.append(f"{lie}, and the model's range is {bounds[0]:g}..{bounds[1]:g}; {_scaled(of)}")
    return found


def _scaled(of: Extremes) -> str:
    """What to give in place of floats in 0..1, as of torchvision's ToTensor, or in 0..255, as of files."""
    return f"give {'x * 2 - 1' if of.high <= 1 else 'x / 127.5 - 1'}, or bytes 0..255"
