from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from diffusion_lab.data import ImageDataModule, Photos
from diffusion_lab.data.sources import bundled
from diffusion_lab.data.sources.bundled import PHOTOGRAPHS, photograph, region

CORNERS = list(itertools.product((0.0, 1 - 2**-53), repeat=3))  # of the unit cube that crops are drawn from


def small(**kwargs) -> Photos:
    return Photos(**(dict(image_size=16, num_images=60, num_test_images=25) | kwargs))


def test_crops_are_rgb_bytes_with_the_number_of_their_photograph():
    source = small()
    train, test = source.train(), source.test()
    assert train.images.shape == (60, 3, 16, 16) and test.images.shape == (25, 3, 16, 16)
    assert train.images.dtype == torch.uint8 and source.train_size() == 60
    assert train.labels.tolist() == [0, 1, 2, 3, 4] * 12 and test.labels.tolist() == [0, 1, 2, 3, 4] * 5
    assert train.images.float().std() > 40  # photographs have contrast, and
    assert (train.images[:, 0].float() - train.images[:, 2].float()).abs().mean() > 10  # colours


def test_the_whole_photograph_is_divided_between_the_splits():
    for name in PHOTOGRAPHS:
        with Image.open(photograph(name)) as image:
            assert image.mode == "RGB"
            whole = np.asarray(image)
        left, right = (np.asarray(region(name, split)) for split in ("train", "test"))
        assert np.array_equal(np.concatenate([left, right], 1), whole)
        assert abs(left.shape[1] / whole.shape[1] - 2 / 3) < 0.01


@pytest.mark.parametrize("image_size", [1, 16, 64, 151])
@pytest.mark.parametrize("max_scale", [1, 1.5, 100])
def test_no_crop_leaves_its_region(image_size, max_scale):
    source = small(image_size=image_size, max_scale=max_scale)
    for name, split in itertools.product(PHOTOGRAPHS, ("train", "test")):
        size = region(name, split).size
        sides = set()
        for draw in CORNERS:
            left, top, side = source.place(*size, *draw)
            assert left >= 0 and top >= 0 and left + side <= size[0] and top + side <= size[1]
            sides.add(side)
        assert min(sides) == image_size and max(sides) == min(int(max_scale * image_size), *size)


def test_crops_of_the_size_itself_are_pixels_of_the_photograph():
    source = small(max_scale=1, num_images=10)
    for i, crop in enumerate(source.train().images):
        whole = np.asarray(region(PHOTOGRAPHS[i % 5], "train")).transpose(2, 0, 1)
        windows = np.lib.stride_tricks.sliding_window_view(whole, (16, 16), (1, 2))
        assert (windows[:, :, :, 0] == crop[:, 0].numpy()[:, None, None]).all((0, 3)).any()


def test_sides_and_places_are_uniform():
    source = small(image_size=10, max_scale=2)
    draws = np.random.RandomState(1).random_sample((20_000, 3))
    places = np.array([source.place(100, 60, *draw) for draw in draws])
    counts = np.bincount(places[:, 2])[10:]
    assert len(counts) == 11 and np.abs(counts / 20_000 - 1 / 11).max() < 5 * np.sqrt(1 / 11 / 20_000)
    for axis, extent in ((0, 100), (1, 60)):
        middle = places[:, axis] / (extent - places[:, 2])
        assert abs(middle.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 20_000) + 0.5 / 40


def test_the_seed_and_the_split_choose_the_crops_and_the_number_does_not():
    first = small()
    assert torch.equal(small(num_images=100).train().images[:60], first.train().images)
    assert small().train().fingerprint() == first.train().fingerprint()
    assert small(seed=1).train().fingerprint() != first.train().fingerprint()
    seeds = (np.random.RandomState([0, split]).random_sample(3).tolist() for split in (0, 1))
    assert next(seeds) != next(seeds)


def test_a_data_module_trains_on_them():
    data = ImageDataModule(small(), 8, conditional=True)
    data.check()
    data.setup()
    assert data.shape == (3, 16, 16) and data.num_classes == 5 and data.describe().name == "photos"


def test_without_scikit_image(monkeypatch):
    monkeypatch.setattr(bundled, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="^source=photos must find scikit-image; run: .*scikit-image$"):
        ImageDataModule(small(), 8).check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(image_size=0), r"image_size=0 must be an integer in \[1, 151\]"),
        (dict(image_size=152), r"image_size=152 must be an integer in \[1, 151\]"),
        (dict(num_images=0), "num_images=0 must be an integer >= 1"),
        (dict(num_test_images=0), "num_test_images=0 must be an integer >= 1"),
        (dict(max_scale=0.5), "max_scale=0.5 must lie in"),
        (dict(max_scale=float("nan")), "max_scale=nan must lie in"),
        (dict(seed=-1), "seed=-1 must be an integer >= 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        small(**arguments)
