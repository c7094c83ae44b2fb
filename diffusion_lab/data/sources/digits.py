"""scikit-learn's hand-written digits: 1797 grey images of 8 x 8 pixels, 10 classes.

The test half of UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998), which is part of the
scikit-learn package; pixels are counts 0..16, here round(255/16 * count).

Test images are the first 360 entries of NumPy's RandomState(0).permutation(1797), training images the other 1437. This
is the split of scikit-learn's `train_test_split(..., test_size=0.2, random_state=0)`. It is random because the file
is sorted by writer, and it does not depend on the run's seed.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from diffusion_lab.data.source import ArrayImages, ImageSource

NUM_IMAGES, NUM_TEST = 1797, 360


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
        _file()

    def train_size(self) -> int:
        return NUM_IMAGES - NUM_TEST

    def load(self, split: str) -> ArrayImages:
        with gzip.open(_file(), "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        order = np.random.RandomState(0).permutation(NUM_IMAGES)
        rows = table[order[:NUM_TEST] if split == "test" else order[NUM_TEST:]]
        pixels = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
        return ArrayImages(torch.from_numpy(pixels), torch.from_numpy(rows[:, -1].astype(np.int64)))


def _file() -> Path:
    """The csv file inside scikit-learn, without importing the package, which would take two seconds."""
    spec = find_spec("sklearn")
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0], "datasets", "data", "digits.csv.gz") if folders else None
    if path is None or not path.is_file():
        raise FileNotFoundError(
            f"source=digits must find {path or 'scikit-learn'}; run: python -m pip install scikit-learn"
        )
    return path
