"""Training batches: a torchvision pipeline's cost over ours.

CPU time of one thread for 20 training batches as training receives them: 128 of 10,000 images of 3 x 32 x 32 bytes,
shuffled without replacement, half of them mirrored, as float32 in [-1, 1]. Ours is `ImageDataModule` with its loader,
its order and `on_after_batch_transfer`, for images in memory. Theirs is the pipeline of a torchvision tutorial: a
Dataset of PIL images (made from an array, as in torchvision's CIFAR10) with RandomHorizontalFlip, ToTensor and
Normalize(0.5, 0.5), in a DataLoader(shuffle=True) without workers, which are slower on few cores. Median over 5 rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_least
from diffusion_lab.data import ArrayImages, ImageDataModule, ImageSource

IMAGES, BATCH, BATCHES, ROUNDS = 10_000, 128, 20, 5


def lines() -> Iterator[Line]:
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seconds = interleaved({"ours": _ours(images), "theirs": _theirs(images)}, ROUNDS)
    yield Line("torchvision's time over ours", ratio(seconds["theirs"], seconds["ours"]), at_least(12))
    yield Line("our batch of 128", Ratio.of([1e6 * value / BATCHES for value in seconds["ours"]]), unit="us")


class Bytes(ImageSource):
    """Images in memory, as in CIFAR10."""

    name, channels, image_size = "bytes", 3, 32

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.images = images

    def train_size(self) -> int:
        return len(self.images)

    def load(self, split: str) -> ArrayImages:
        return ArrayImages(self.images)


def _ours(images: Tensor) -> Callable[[], None]:
    data = ImageDataModule(Bytes(images), BATCH, flip=True)
    data.setup()
    batches = iter(data.train_dataloader())

    def run() -> None:
        for _ in range(BATCHES):
            data.on_after_batch_transfer(next(batches), 0)

    return run


class Pictures(Dataset[Tensor]):
    """PIL images of an array, transformed one by one."""

    def __init__(self, images: Tensor) -> None:
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.transform = transforms.Compose(
            [transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(Image.fromarray(self.images[index]))


def _theirs(images: Tensor) -> Callable[[], None]:
    loader = DataLoader(Pictures(images), BATCH, shuffle=True, drop_last=True)
    batches = _endless(loader)

    def run() -> None:
        for _ in range(BATCHES):
            next(batches)

    return run


def _endless(loader: DataLoader) -> Iterator[Tensor]:
    while True:
        yield from loader
