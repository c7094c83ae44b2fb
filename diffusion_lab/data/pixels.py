"""Images as numbers: between bytes and the model's range, and of any size and mode to (channels, S, S) bytes.

x = u / 127.5 - 1   for bytes u in 0..255, so 0 -> -1 and 255 -> 1 exactly;   float data pass unchanged

Images of any size and mode become squares:

    crop, where one is given;  scale = S / min(width, height), antialiased;  then the central S x S

`resize=bicubic` is Pillow's antialiased bicubic filter in one step. `resize=box_bicubic` first halves the image with a
box filter while its shorter side has at least 2S pixels, then applies the bicubic filter. This is the preprocessing of
ImageNet in the released code of P. Dhariwal, A. Nichol, "Diffusion Models Beat GANs on Image Synthesis", arXiv
2105.05233, with which published ImageNet reference statistics are computed.
Differs from the released code: EXIF rotations are applied and transparent pixels become white, because folders of
users contain both.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image
from torch import Tensor

from diffusion_lab.arguments import check_integer

RESIZES = ("bicubic", "box_bicubic")
# How an image with an EXIF orientation is turned: EXIF 2.32, tag 0x0112.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def to_float(images: Tensor) -> Tensor:
    """uint8 0..255 -> float32 in [-1, 1]; float images pass unchanged."""
    return images if images.is_floating_point() else images.to(torch.float32).div_(127.5).sub_(1.0)


def to_uint8(images: Tensor) -> Tensor:
    """Inverse of `to_float`: float in [-1, 1] -> uint8 0..255, rounded and clamped."""
    return images.to(torch.float32).add(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)


def as_bytes(images: Tensor) -> Tensor:
    """uint8 as it is, floats in [-1, 1] as by `to_uint8`."""
    return images if images.dtype == torch.uint8 else to_uint8(images)


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


@dataclass(frozen=True)
class Square:
    """How the images of a set are converted to one shape.

    Attributes:
        image_size: S, pixels along a side.
        channels: 1 (luminance) or 3 (RGB).
        resize: bicubic or box_bicubic.
        crop: (left, top, side) in pixels of the stored image, cut out before resizing; None: nothing is cut.

    Raises:
        ValueError: a value outside its range.
    """

    image_size: int
    channels: int = 3
    resize: str = "bicubic"
    crop: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        check_integer("image_size", self.image_size, 1, "use 32 or 64 pixels")
        if self.channels not in (1, 3):
            raise ValueError(f"channels={self.channels} must be 1 (grey) or 3 (RGB); use 3 for colour photographs")
        if self.resize not in RESIZES:
            raise ValueError(f"resize={self.resize} must be bicubic or box_bicubic; use bicubic")

    def __call__(self, content: bytes) -> np.ndarray:
        """(channels, S, S) uint8 of an encoded image."""
        with Image.open(io.BytesIO(content)) as image:
            taken: Image.Image = image
            if self.crop is not None:
                left, top, side = self.crop
                taken = image.crop((left, top, left + side, top + side))
            return to_square(taken, self.image_size, self.channels, self.resize)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, S, S)."""
        return self.channels, self.image_size, self.image_size

    @property
    def megabytes(self) -> float:
        """Size of one image in units of 2^20 bytes."""
        return math.prod(self.shape) / 2**20

    def identity(self) -> str:
        """Part of a fingerprint, because equal files converted in different ways are different images."""
        special = "" if self.resize == "bicubic" else f" {self.resize}"
        return f"{self.channels}x{self.image_size}{special}" + (f" {self.crop}" if self.crop else "")


def upright(image: Image.Image) -> Image.Image:
    """As its EXIF orientation says; as it is stored where that cannot be read."""
    image.load()  # Pillow turns a TIFF itself, and then has no orientation of it any more
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # Pillow raises any class of error on damaged EXIF data
        return image
    turned = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turned is None else image.transpose(turned)


def to_square(image: Image.Image, image_size: int, channels: int, resize: str = "bicubic") -> np.ndarray:
    """(channels, image_size, image_size) uint8: shorter side resized to image_size, centre cropped."""
    image = upright(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    while resize == "box_bicubic" and min(image.size) >= 2 * image_size:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    scale = image_size / min(image.size)
    width, height = (max(image_size, round(side * scale)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)  # Pillow antialiases when it shrinks
    left, top = (width - image_size) // 2, (height - image_size) // 2
    pixels = np.asarray(image.crop((left, top, left + image_size, top + image_size)))
    return np.ascontiguousarray(pixels.reshape(image_size, image_size, channels).transpose(2, 0, 1))
