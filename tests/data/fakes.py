"""A source in memory, and a stand-in for the trainer, so that ranks can be looked at one after the other."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from diffusion_lab.data import ArrayImages, Conditions, ImageDataModule, ImageSource


class Memory(ImageSource):
    """The images and labels that it is given, for both splits."""

    name = "memory"

    def __init__(self, images: Tensor, labels: Tensor | None = None, num_classes: int | None = None) -> None:
        super().__init__()
        self.images, self.labels, self.num_classes = images, labels, num_classes
        self.channels, self.image_size = images.shape[1], images.shape[2]

    def train_size(self) -> int:
        return len(self.images)

    def load(self, split: str) -> ArrayImages:
        return ArrayImages(self.images, self.labels)


def conditions_of(shape: tuple[int, int, int]) -> Conditions:
    """Of unconditional images (C,H,W)."""
    return Conditions(Memory(torch.zeros(1, *shape, dtype=torch.uint8)))


def numbered(n: int = 40) -> Tensor:
    """(n,1,2,2) uint8 with image i = [[i, 200], [i, 200]]: the left column names the image, and shows a flip."""
    images = torch.full((n, 1, 2, 2), 200, dtype=torch.uint8)
    images[:, 0, :, 0] = torch.arange(n, dtype=torch.uint8)[:, None]
    return images


def trainer(rank: int = 0, world_size: int = 1, step: int = 0) -> SimpleNamespace:
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    return SimpleNamespace(global_rank=rank, world_size=world_size, global_step=step, strategy=strategy, num_devices=1)


def first_batches(data: ImageDataModule, count: int) -> list[dict[str, Tensor]]:
    """The next batches of the training loader, as the model would see them."""
    loader = iter(data.train_dataloader())
    return [data.on_after_batch_transfer(next(loader), 0) for _ in range(count)]
