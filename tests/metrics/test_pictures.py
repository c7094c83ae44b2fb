"""Grids of samples."""

import numpy as np
import pytest
import torch
from PIL import Image

from diffusion_lab.metrics import grid, save_grid


def images(n, channels=1, size=2):
    return torch.arange(n * channels * size * size, dtype=torch.uint8).view(n, channels, size, size)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_pixel_is_where_it_belongs(channels, tmp_path):
    pictures = images(5, channels)
    save_grid(pictures, tmp_path / "new" / "grid.png", columns=3, scale=4)
    page = np.array(Image.open(tmp_path / "new" / "grid.png"))
    page = page[None] if channels == 1 else page.transpose(2, 0, 1)
    assert page.shape == (channels, 2 * 10 + 2, 3 * 10 + 2)
    for i, picture in enumerate(pictures.numpy()):
        top, left = 2 + 10 * (i // 3), 2 + 10 * (i % 3)
        cell = page[:, top : top + 8, left : left + 8]
        assert np.array_equal(cell, picture.repeat(4, 1).repeat(4, 2))
        page[:, top : top + 8, left : left + 8] = 255
    assert (page == 255).all()  # nothing else but white
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["grid.png"]


def test_small_images_become_visible_and_large_ones_stay():
    assert grid(torch.zeros(64, 1, 8, 8, dtype=torch.uint8)).shape == (1, 8 * 50 + 2, 8 * 50 + 2)
    assert grid(torch.zeros(4, 3, 64, 64, dtype=torch.uint8)).shape == (3, 2 * 66 + 2, 2 * 66 + 2)


def test_one_image_without_a_gap_is_itself(tmp_path):
    save_grid(images(1, 3), tmp_path / "one.png", columns=1, scale=1, gap=0)
    page = np.array(Image.open(tmp_path / "one.png"))
    assert np.array_equal(page.transpose(2, 0, 1), images(1, 3)[0].numpy())


def test_equal_images_give_equal_files(tmp_path):
    for name in ("a.png", "b.png"):
        save_grid(images(4), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("bad", [torch.rand(2, 1, 4, 4), images(2, 4), images(2)[0], images(2)[:0]])
def test_other_tensors_are_refused(bad):
    with pytest.raises(ValueError, match="must be uint8"):
        grid(bad)
