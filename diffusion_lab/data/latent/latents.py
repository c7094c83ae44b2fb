"""Latents of an autoencoder as a data set, and their decoding to pixels.

    x = (z - mean_c) / std_c        mean and std of channel c over the training latents, so x has mean 0, variance 1
    pixels = D(std_c x + mean_c)    with the autoencoder that encoded

Differs from LDM and Stable Diffusion (Rombach et al. 2022, appendix G; scale_factor 0.18215), which divide all channels
by one number, the standard deviation of the first batch, and subtract no mean. With the statistics of each channel over
all training latents, the schedule's signal-to-noise ratios hold for every channel of every autoencoder.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, check_integer
from diffusion_lab.data.latent.autoencoder import CLASSES, Autoencoder
from diffusion_lab.data.latent.stored import HEADER, Header, open_labels, open_split, read_header, verify
from diffusion_lab.data.pixels import to_uint8
from diffusion_lab.data.source import ImageSet, ImageSource


class Planned(NamedTuple):
    """The sizes needed to build a network: (c,h,w), and the number of classes or None."""

    shape: tuple[int, ...]
    num_classes: int | None


class Latents(ImageSource):
    """The latents written by `diffusion-lab encode`, memory-mapped: (c,h,w) float32, mean 0 and variance 1 per channel.

    Args:
        root: folder with latents.json.
        autoencoder: folder or hub name of the autoencoder that decodes, see `Autoencoder`; its identity must be that in
            latents.json. None: the location that `encode` used.
        images: the source of the encoded images, with which metrics compare; None, with features=null: no metrics.
        batch_size: latents decoded at a time.
        shape: required shape (c,h,w) of the latents; None: any. With it a run can be planned before they exist.
        num_classes: required number of classes of the images; None: any.

    Raises:
        FileNotFoundError: latents or autoencoder are missing (from `check` and on use).
        ValueError: another autoencoder, other images, or altered files (likewise).
    """

    value_range = None
    flippable = False

    def __init__(
        self,
        root: ReadPath,
        autoencoder: str | None = None,
        images: ImageSource | None = None,
        batch_size: int = 16,
        shape: Sequence[int] | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.planned = None if shape is None else Planned(tuple(shape), num_classes)
        self.root = Path(root).expanduser()
        self.place, self.images = autoencoder, images
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 16")

    @functools.cached_property
    def header(self) -> Header:
        """The header, read at the first use and compared with the autoencoder."""
        header = read_header(self.root)
        autoencoder = self._find(header)
        try:
            different = _difference(autoencoder.identity(), header.autoencoder)
        except (ValueError, FileNotFoundError) as error:  # the argument has another name here
            raise type(error)(str(error).replace("weights=", "autoencoder=", 1)) from error
        if different:
            raise ValueError(
                f"autoencoder={autoencoder.weights} must be the one that encoded {self.root}, and {different}; "
                "give that one's folder, or encode again with this one"
            )
        return header

    @property
    def name(self) -> str:
        """Name of the images with the suffix `_latent`; name of the folder if there are no latents yet."""
        return self.root.name if self._absent else f"{self.header.images['name']}_latent"

    @property
    def channels(self) -> int:
        """c."""
        return self._plan.shape[0]

    @property
    def image_size(self) -> int:
        """h = w, in latent pixels."""
        return self._plan.shape[1]

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the images."""
        return self._plan.num_classes

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes of the images; numbers if there are no latents yet."""
        return super().class_names if self._absent else self.header.images["classes"]

    @property
    def _absent(self) -> bool:
        return self.planned is not None and not (self.root / HEADER).exists()

    @property
    def _plan(self) -> Planned:
        if self.planned is not None and self._absent:
            return self.planned
        return Planned(tuple(self.header.shape), self.header.images["num_classes"])

    def check(self) -> None:
        read_header(self.root)
        actual, planned = self._plan, self.planned
        if planned and (planned.shape != actual.shape or planned.num_classes not in (None, actual.num_classes)):
            raise ValueError(
                f"shape={list(planned.shape)} with num_classes={planned.num_classes} must be what is in "
                f"{self.root}, {list(actual.shape)} with {actual.num_classes}; give that, or another folder"
            )
        for split in ("train", "test"):
            open_split(self.root, self.header, split)
            open_labels(self.root, self.header, split)
        if self.images is not None:
            self._check_images(self.images)

    def train_size(self) -> int:
        return self.header.splits["train"]["shape"][0]

    def load(self, split: str) -> ImageSet:
        verify(self.root, self.header, split)
        return LatentImages(self.root, self.header, split)

    def listed(self, split: str) -> ImageSet:
        return LatentImages(self.root, self.header, split)

    def to_pixels(self, x: Tensor) -> Tensor:
        """(n,c,h,w) float -> (n,3,fh,fw) uint8 on the same device."""
        mean, std = _statistics(self.header, x)
        return to_uint8(self._autoencoder.decode(x.to(torch.float32) * std + mean))

    def check_pixels(self) -> None:
        """The autoencoder must be there, and the one that encoded."""
        _ = self.header

    def decoding(self) -> dict[str, Any]:
        """From the header alone: neither the autoencoder nor diffusers is needed."""
        header = read_header(self.root)
        own = header.autoencoder
        if own["class"] not in CLASSES:
            raise ValueError(f"root={self.root} must have latents of {' or '.join(CLASSES)}, not of {own['class']!r}")
        place, subfolder = Autoencoder(self.place or own["place"]).loaded_from
        return {
            "mean": header.mean,
            "std": header.std,
            "autoencoder": {
                "class": own["class"],
                "place": place,
                "subfolder": subfolder,
                "weights_sha256": own["weights_sha256"],
            },
        }

    def pixels(self) -> ImageSource:
        if self.images is None:
            raise ValueError(
                "images=null must be the encoded image source, because metrics compare with it; set "
                "dataset.features=null to train without metrics"
            )
        return self.images

    @functools.cached_property
    def _autoencoder(self) -> Autoencoder:
        return self._find(self.header)

    def _find(self, header: Header) -> Autoencoder:
        return Autoencoder(self.place or header.autoencoder["place"], batch_size=self.batch_size)

    def _check_images(self, images: ImageSource) -> None:
        """Compare the images with the header, without loading them."""
        images.check()
        encoded = self.header.images
        actual = (images.channels, images.image_size, images.train_size())
        wanted = (encoded["channels"], encoded["image_size"], encoded["train"]["images"])
        if actual != wanted:
            raise ValueError(
                f"images={images.name} must be the images that were encoded, {encoded['name']} with channels, size and "
                f"number {wanted}, and has {actual}; give those, or encode these"
            )


class LatentImages(ImageSet):
    """One split, memory-mapped. A copy in another process reopens the file.

    Args:
        root: the folder.
        header: its header.
        split: "train" or "test".
    """

    def __init__(self, root: Path, header: Header, split: str) -> None:
        self.root, self.header, self.split = root, header, split
        labels = open_labels(root, header, split)
        self.labels = None if labels is None else torch.from_numpy(labels)

    def __len__(self) -> int:
        return self.header.splits[self.split]["shape"][0]

    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        stored = torch.from_numpy(self._array[np.asarray(ids, dtype=np.int64)]).to(torch.float32)
        mean, std = _statistics(self.header, stored)
        return stored.sub_(mean).div_(std)

    def fingerprint(self) -> str:
        return self.header.splits[self.split]["sha256"][:12]

    @functools.cached_property
    def _array(self) -> np.ndarray:
        return open_split(self.root, self.header, self.split)

    def __getstate__(self) -> dict[str, Any]:
        # A memory-mapped array would be pickled with its whole content.
        return {key: value for key, value in vars(self).items() if key != "_array"}


def _statistics(header: Header, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std, each (c,1,1) float32 on the device of `like`."""
    mean, std = (torch.tensor(values, device=like.device).view(-1, 1, 1) for values in (header.mean, header.std))
    return mean, std


def _difference(actual: dict[str, Any], wanted: dict[str, Any]) -> str:
    """A description of the first difference between two autoencoders; "" if they are equal.

    Keys that only one configuration has are ignored, because versions of diffusers write different defaults.
    """
    if actual["class"] != wanted["class"]:
        return f"it is a {actual['class']} where that was a {wanted['class']}"
    ours, theirs = actual["config"], wanted["config"]
    for key in sorted(ours.keys() & theirs.keys()):
        if ours[key] != theirs[key]:
            return f"its {key} is {ours[key]} where that one's was {theirs[key]}"
    ours, theirs = actual["weights_sha256"][:12], wanted["weights_sha256"][:12]
    return "" if ours == theirs else f"its weights have the SHA-256 {ours} where that one's had {theirs}"
