from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.data.pixels import Square, to_square

RNG = np.random.default_rng(0)


def noise(width: int, height: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def halved(pixels: np.ndarray) -> np.ndarray:
    """Means of two neighbours along a row, then along a column, each rounded half up as Pillow's box filter does."""
    rows = (pixels[:, ::2].astype(int) + pixels[:, 1::2] + 1) // 2
    return (rows[::2] + rows[1::2] + 1) // 2


def test_box_halvings_come_before_the_bicubic_filter():
    """From 4S to S only halvings are left."""
    pixels = noise(48, 32)
    got = Square(8, resize="box_bicubic")(encoded(pixels))
    want = halved(halved(pixels))[:, 2:10].transpose(2, 0, 1)
    assert np.array_equal(got, want)
    assert np.abs(Square(8)(encoded(pixels)) - want).max() > 10  # the wider filter sees other pixels


def test_the_way_that_is_left_is_bicubic():
    pixels = noise(28, 28)
    half = Image.fromarray(halved(pixels).astype(np.uint8))
    want = np.asarray(half.resize((10, 10), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    assert np.array_equal(to_square(Image.fromarray(pixels), 10, 3, "box_bicubic"), want)


def test_enlarging_needs_no_box():
    small = Image.fromarray(noise(7, 5))
    assert np.array_equal(to_square(small, 16, 3, "box_bicubic"), to_square(small, 16, 3))


def test_a_crop_comes_first():
    pixels = noise(40, 30)
    got = Square(8, crop=(11, 5, 8))(encoded(pixels))
    assert np.array_equal(got, pixels[5:13, 11:19].transpose(2, 0, 1))


def test_identities_differ_where_pixels_do():
    squares = [Square(8), Square(8, 1), Square(16), Square(8, resize="box_bicubic"), Square(8, crop=(0, 0, 9))]
    assert len({square.identity() for square in squares}) == len(squares)
    assert Square(1024, 1).megabytes == 1 and Square(1024, 3).megabytes == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(image_size=0), "image_size=0 must be an integer >= 1"),
        (dict(image_size=8, channels=2), r"channels=2 must be 1 \(grey\) or 3"),
        (dict(image_size=8, resize="area"), "resize=area must be bicubic or box_bicubic"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Square(**arguments)
