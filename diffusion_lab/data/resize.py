"""Converts images of any size and mode to (channels, S, S) bytes.

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
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from diffusion_lab.arguments import check_integer

RESIZES = ("bicubic", "box_bicubic")


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
            return self.of(image)

    def of(self, image: Image.Image) -> np.ndarray:
        """(channels, S, S) uint8 of a decoded image."""
        if self.crop is not None:
            left, top, side = self.crop
            image = image.crop((left, top, left + side, top + side))
        return to_square(image, self.image_size, self.channels, self.resize)

    @property
    def megabytes(self) -> float:
        """Size of one image in units of 2^20 bytes."""
        return self.channels * self.image_size**2 / 2**20

    def identity(self) -> str:
        """Part of a fingerprint, because equal files converted in different ways are different images."""
        special = "" if self.resize == "bicubic" else f" {self.resize}"
        return f"{self.channels}x{self.image_size}{special}" + (f" {self.crop}" if self.crop else "")


def to_square(image: Image.Image, image_size: int, channels: int, resize: str = "bicubic") -> np.ndarray:
    """(channels, image_size, image_size) uint8: shorter side resized to image_size, centre cropped."""
    image = ImageOps.exif_transpose(image)
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
