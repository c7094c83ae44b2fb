"""Small real data sets that need no network, from packages: scikit-learn's digits, photographs of scikit-image.

`Digits` is the test half of UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998): 1797 grey
images of 8 x 8 pixels, 10 classes. Pixels are counts 0..16, here round(255/16 * count). Test images are the first 360
entries of NumPy's RandomState(0).permutation(1797), training images the other 1437. This is the split of scikit-learn's
`train_test_split(..., test_size=0.2, random_state=0)`. It is random because the file is sorted by writer, and it does
not depend on the run's seed.

`Photos` are random square crops of five colour photographs: an astronaut's portrait, a cat, a cup of coffee, a
motorcycle in a garage, a rocket at dusk (all in the public domain, CC0, or published for stereo research by
D. Scharstein et al., 2014). Microscopy, retina, diagrams and the nearly black deep field are not used, nor the second
view of the motorcycle, which shows the same pixels as the first.

A photograph of W x H pixels is cut at x = floor(2W/3): training crops lie to the left, test crops to the right, so that
no pixel is in both. Crop i is of photograph i mod 5, with (u, v, w) ~ U[0,1)^3 from RandomState([seed, split]):

    side = S + floor(u (m - S + 1)),  m = min(floor(max_scale S), region's width, region's height)
    left = floor(v (width - side + 1)),  top = floor(w (height - side + 1))

resized to S x S by Pillow's antialiased bicubic filter. Sets of different sizes with the same seed start with the same
crops.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.data.pixels import to_square
from diffusion_lab.data.source import ArrayImages, ImageSource

NUM_IMAGES, NUM_TEST = 1797, 360  # of the digits
PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
LARGEST = 151  # pixels: the width of the smallest test region, a third of the cat's 451
SPLITS = ("train", "test")


class Digits(ImageSource):
    """1437 training and 360 test images (1,8,8) with labels 0..9.

    Raises:
        FileNotFoundError: scikit-learn is not installed (from `check` and on loading).
    """

    name = "digits"
    channels = 1
    image_size = 8
    num_classes = 10

    def check(self) -> None:
        self._file()

    def _file(self) -> Path:
        return _packaged("digits", "sklearn", "scikit-learn", "datasets", "data", "digits.csv.gz")

    def train_size(self) -> int:
        return NUM_IMAGES - NUM_TEST

    def load(self, split: str) -> ArrayImages:
        with gzip.open(self._file(), "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        order = np.random.RandomState(0).permutation(NUM_IMAGES)
        rows = table[order[:NUM_TEST] if split == "test" else order[NUM_TEST:]]
        pixels = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
        return ArrayImages(torch.from_numpy(pixels), torch.from_numpy(rows[:, -1].astype(np.int64)))


class Photos(ImageSource):
    """Crops (3, image_size, image_size); the label 0..4 is the number of the photograph.

    Args:
        image_size: S, pixels along a side, at most 151.
        num_images: number of training crops.
        num_test_images: number of test crops.
        max_scale: side of the largest crop as a multiple of S, at least 1; the smallest crop has side S, and each is
            resized to S.
        seed: seed of the crops, not of the run: runs with different seeds have the same images.

    Raises:
        ValueError: an argument outside its range.
        FileNotFoundError: scikit-image is not installed (from `check` and on loading).
    """

    name = "photos"
    channels = 3
    num_classes = len(PHOTOGRAPHS)
    classes = tuple(name.partition(".")[0] for name in PHOTOGRAPHS)

    def __init__(
        self,
        image_size: int = 64,
        num_images: int = 4096,
        num_test_images: int = 512,
        max_scale: float = 2.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_integer("image_size", image_size, 1, "use 64 pixels", maximum=LARGEST)
        for key, value in (("num_images", num_images), ("num_test_images", num_test_images)):
            check_integer(key, value, 1, "use 512")
        check_number("max_scale", max_scale, "[)", 1, float("inf"), "use 2 for crops of S to 2S pixels")
        check_integer("seed", seed, 0, "use 0")
        self.image_size, self.max_scale, self.seed = image_size, max_scale, seed
        self.counts: dict[str, int] = {"train": num_images, "test": num_test_images}

    def check(self) -> None:
        for name in PHOTOGRAPHS:
            photograph(name)

    def train_size(self) -> int:
        return self.counts["train"]

    def load(self, split: str) -> ArrayImages:
        regions = [region(name, split) for name in PHOTOGRAPHS]
        draws = np.random.RandomState([self.seed, SPLITS.index(split)]).random_sample((self.counts[split], 3))
        crops = [self._crop(regions[i % len(regions)], *draw) for i, draw in enumerate(draws)]
        return ArrayImages(torch.from_numpy(np.stack(crops)), torch.arange(len(crops)) % len(regions))

    def _crop(self, image: Image.Image, u: float, v: float, w: float) -> np.ndarray:
        left, top, side = self.place(image.width, image.height, u, v, w)
        return to_square(image.crop((left, top, left + side, top + side)), self.image_size, self.channels)

    def place(self, width: int, height: int, u: float, v: float, w: float) -> tuple[int, int, int]:
        """(left, top, side) of a crop in a region of this size, from three numbers in [0, 1)."""
        largest = min(int(self.max_scale * self.image_size), width, height)
        side = self.image_size + int(u * (largest - self.image_size + 1))
        return int(v * (width - side + 1)), int(w * (height - side + 1)), side


def region(name: str, split: str) -> Image.Image:
    """The part of a photograph from which a split is cropped."""
    with Image.open(photograph(name)) as image:
        cut = 2 * image.width // 3
        return image.convert("RGB").crop((0, 0, cut, image.height) if split == "train" else (cut, 0, *image.size))


def photograph(name: str) -> Path:
    """A file inside scikit-image."""
    return _packaged("photos", "skimage", "scikit-image", "data", name)


def _packaged(source: str, module: str, package: str, *place: str) -> Path:
    """A file inside a package, found without importing the package, which would take seconds.

    Raises:
        FileNotFoundError: it is not installed.
    """
    spec = find_spec(module)
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0], *place) if folders else None
    if path is None or not path.is_file():
        raise FileNotFoundError(f"source={source} must find {path or package}; run: python -m pip install {package}")
    return path
