"""Fashion-MNIST: 60,000 training and 10,000 test grey images of 28 x 28 pixels, 10 classes.

H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
arXiv 1708.07747.

At S < 28 pixels every image is reduced to the means of its k x k blocks, k = 28 / S:

    y[i,j] = round(1/k^2 sum_{a,b < k} x[k i + a, k j + b])

The sum is exact in float32, and halves are rounded to even, so no grey level is preferred.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from diffusion_lab.arguments import DownloadPath, check_integer
from diffusion_lab.data.source import ArrayImages, ImageSource
from diffusion_lab.data.sources.published_files import fetch, idx_shape, read_idx

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # folder of the package dataset-fashion-mnist
STORED = 28  # pixels along a side of a stored image
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class FashionMNIST(ImageSource):
    """Images (1,S,S) with labels 0..9 from the four IDX files, each gzipped or not.

    Searched for in `root`, in torchvision's `root`/FashionMNIST/raw, and in the folder of the Debian package
    dataset-fashion-mnist; the first folder with all four is used.

    Args:
        root: folder of the four IDX files; those of Debian's dataset-fashion-mnist are found without it.
        download: whether to fetch the files, 30 MB, into `root` with torchvision if no folder has them.
        image_size: S, pixels along a side, a divisor of 28. Below 28 it is part of the data set's name, e.g.
            fashion_mnist14.

    Raises:
        ValueError: `image_size` does not divide 28.
        FileNotFoundError: no folder has all four files (from `check` and on loading).
        ValueError: a file is damaged (from `check` if its header is, else on loading).
    """

    name = "fashion_mnist"
    channels = 1
    num_classes = 10
    classes = ("T-shirt/top", *"Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag".split(), "Ankle boot")

    def __init__(self, root: DownloadPath, download: bool = False, image_size: int = STORED) -> None:
        super().__init__()
        cure = f"use {STORED} or 14"
        check_integer("image_size", image_size, 1, cure)
        if STORED % image_size:
            raise ValueError(f"image_size={image_size} must divide the {STORED} pixels of a stored image; {cure}")
        self.root = Path(root).expanduser()
        self.download, self.image_size = download, image_size
        if image_size != STORED:
            self.name = f"fashion_mnist{image_size}"

    def check(self) -> None:
        if self._find() is None and self.download:
            return
        self._shapes(self._folder())

    def prepare(self) -> None:
        if self._find() is None and self.download:
            fetch("FashionMNIST", self.root, lambda: self._find() is not None)

    def train_size(self) -> int:
        folder = self._find()
        return 60_000 if folder is None else self._shapes(folder)[0]

    def load(self, split: str) -> ArrayImages:
        folder = self._folder()
        self._shapes(folder)
        try:
            images, labels = (read_idx(_existing(folder, name)) for name in FILES[split])
        except ValueError as error:
            raise self._damaged(error) from error
        pixels = block_means(torch.from_numpy(images)[:, None], STORED // self.image_size)
        return ArrayImages(pixels, torch.from_numpy(labels))

    def _shapes(self, folder: Path) -> tuple[int, int]:
        """Numbers of training and test images, from the headers, which are checked."""
        sizes = []
        for image_name, label_name in FILES.values():
            try:
                images, labels = (idx_shape(_existing(folder, name)) for name in (image_name, label_name))
            except ValueError as error:
                raise self._damaged(error) from error
            if images[1:] != (STORED, STORED) or labels != images[:1]:
                shapes = f"{folder / image_name} has the shape {images}, {label_name} {labels}"
                raise self._damaged(ValueError(f"{shapes} where (N, {STORED}, {STORED}) and (N,) belong"))
            sizes.append(images[0])
        return sizes[0], sizes[1]

    def _damaged(self, error: Exception) -> ValueError:
        return ValueError(f"root={self.root} must hold intact files, but {error}; delete that file and fetch it again")

    def _folders(self) -> list[Path]:
        return [self.root, self.root / "FashionMNIST" / "raw", DEBIAN_FOLDER]

    def _find(self) -> Path | None:
        return next((folder for folder in self._folders() if not _missing(folder)), None)

    def _folder(self) -> Path:
        folder = self._find()
        if folder is None:
            searched = ", ".join(str(folder.absolute()) for folder in self._folders())
            missing = min((_missing(folder) for folder in self._folders()), key=len)
            raise FileNotFoundError(
                f"root={self.root} must hold the files {', '.join(missing)} (each may end in .gz); put them there, "
                "or set download=true (torchvision fetches 30 MB), or install the Debian package "
                f"dataset-fashion-mnist. Searched: {searched}"
            )
        return folder


def block_means(images: Tensor, k: int) -> Tensor:
    """Rounded means of the k x k blocks of images (N,C,H,W) uint8, where k divides H and W: (N,C,H/k,W/k) uint8."""
    if k == 1:
        return images
    parts = images.split(4096)  # all images as float32 would take four times the memory of the stored ones
    return torch.cat([avg_pool2d(part.float(), k).round_().to(torch.uint8) for part in parts])


def _missing(folder: Path) -> list[str]:
    return [name for pair in FILES.values() for name in pair if not _existing(folder, name).is_file()]


def _existing(folder: Path, name: str) -> Path:
    plain = folder / name
    return plain if plain.is_file() else folder / f"{name}.gz"
