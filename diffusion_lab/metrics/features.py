"""Feature extractors, and the small classifier that provides the features for small data sets.

An extractor is a fixed function from uint8 images (N,C,H,W) to features (N,D) and class logits (N,K). It has a name
and a hash of its weights, because a Fréchet distance is meaningless without them: results of different extractors get
different names (`fid50k` for Inception only; a small classifier gives `fd1k_digits`) and never share a cache.

The small classifier is convolutional:

    x in {0..255} -> x/127.5 - 1 -> [conv 3x3, batch norm, ReLU] x 3, halving the size after the 1st and the 2nd
      -> linear to D, batch norm, ReLU = features (N, D) -> linear to K = logits (N, K)

Its features are the penultimate activations, as those of Inception-v3 are for FID (Heusel et al. 2017). They are
flattened before the linear layer, not averaged over the image, so that they depend on the position of a stroke.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import to_uint8
from diffusion_lab.files import file_sha256
from diffusion_lab.progress import progress as shown

WEIGHTS = Path(__file__).parent / "weights"
MIB = 2**20
MOST = 256  # images of one call on a GPU, which more would not make faster


class Features(NamedTuple):
    """features (N,D) and logits (N,K), float32."""

    features: Tensor
    logits: Tensor


class FeatureExtractor(nn.Module, ABC):
    """A frozen network from uint8 images to `Features`, loaded at its first use.

    A subclass defines `name`, `feature_dim`, `channels`, `preprocessing`, `weights_file()` and `load()`,
    `image_size` if it takes only one, and `has_classes = False` without logits. Its network may have a method
    `maps(images)`, features by place (N,D,h,w).

    Attributes:
        image_size: H = W of the images in pixels; None: any size, because the network resizes.
        preprocessing: description of the operations on the bytes before the network. It is part of the key of cached
            statistics, so it must change when they change.
        has_classes: whether it has class scores; without them the logits are (N,0).
        data_classes: whether its classes are those of the data set, so that metrics of classes are left out where the
            data set has none, as where there is no extractor; else they are refused.
        batch_size: images of one network call; None: what `images_per_call` says.
        on_cpu: images of one call on a CPU; 64 is fastest for a small network and 16 for a large one.
        image_bytes: memory that an image takes in a call, in bytes, at most; None: not known.
    """

    name: str
    feature_dim: int
    channels: int
    image_size: int | None = None
    preprocessing: str
    has_classes: bool = True
    data_classes: bool = False
    batch_size: int | None = None
    on_cpu: int = 64
    image_bytes: int | None = None

    @abstractmethod
    def weights_file(self) -> Path:
        """The weights on disk; raises FileNotFoundError or ValueError if they are missing or wrong."""

    @abstractmethod
    def load(self) -> nn.Module:
        """The network in float32: images (N,C,H,W) uint8 -> (features, logits)."""

    def check(self) -> None:
        """Raise FileNotFoundError or ValueError if the extractor cannot be used on this machine."""
        self.weights_file()

    def prepare(self, device: torch.device | str) -> None:
        """Called on all processes before an evaluation, with its device; by default there is nothing to do."""
        return None

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """Shape of an image, e.g. (1, 28, 28), or (3, "H", "W") for any size."""
        return (self.channels, *("HW" if self.image_size is None else (self.image_size, self.image_size)))

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether the extractor is for images of the shape (C,H,W)."""
        return shape[0] == self.channels and all(self.image_size in (None, side) for side in shape[1:])

    @cached_property
    def weights_sha256(self) -> str:
        """sha256 of the weights file, 64 hexadecimal digits."""
        return file_sha256(self.weights_file())

    @property
    def suffix(self) -> str:
        """Suffix of the names of metrics with this extractor; values of different extractors cannot be compared."""
        return f"_{self.name}"

    @cached_property
    def _network(self) -> list[nn.Module]:
        # In a list, so that the weights are in no state dict of an owner of the extractor. Some callers build objects
        # under torch.device("meta"); weights must be real.
        with torch.device("cpu"):
            return [self.load().eval().requires_grad_(False)]

    def forward(self, images: Tensor) -> Features:
        """Features of one batch.

        Args:
            images: (N,C,H,W) uint8.

        Raises:
            ValueError: another dtype (a float image in [0, 1] would be black), number of channels or size.
        """
        return self._features(images, images_per_call(self, images.device))

    def _features(self, images: Tensor, size: int) -> Features:
        outputs = self._parts(images, self._network[0], size)
        # Copies, which are ordinary tensors outside inference mode.
        features, logits = (torch.cat(parts).float() for parts in zip(*outputs, strict=True))
        return Features(features, logits)

    def maps(self, images: Tensor) -> Tensor | None:
        """Features by place: (N,C,H,W) uint8 -> (N,D,h,w) float32; None if the network has no method `maps`."""
        maps = getattr(self._network[0], "maps", None)
        return None if maps is None else torch.cat(self._parts(images, maps, self._steady)).float()

    def by_place(self, x0: Tensor) -> Tensor:
        """Features of images in [-1, 1] as models are trained on: (b,C,H,W) -> (b,D,h,w), or (b,D,1,1) of a network
        without a method `maps`."""
        images = to_uint8(x0)
        found = self.maps(images)
        return self._features(images, self._steady).features[..., None, None] if found is None else found

    @property
    def _steady(self) -> int:
        """Images of one call in training, which is no function of the free memory."""
        return self.batch_size or self.on_cpu

    def _parts(self, images: Tensor, function: Callable[[Tensor], Any], size: int) -> list[Any]:
        """Of each part of the images."""
        if images.dtype != torch.uint8 or images.ndim != 4 or not self.takes(tuple(images.shape[1:])):
            wanted = ",".join(map(str, ("N", *self.input_shape)))
            raise ValueError(
                f"images of shape {tuple(images.shape)} and {images.dtype} must be uint8 ({wanted}) for the extractor "
                f"{self.name!r}; turn [-1, 1] floats into bytes with diffusion_lab.data.to_uint8"
            )
        # Training may run in bfloat16; features of that precision would shift every distance.
        with torch.autocast(images.device.type, enabled=False), torch.inference_mode():
            self._network[0].to(images.device)
            return [function(part) for part in images.split(size)]


def check_call(batch_size: int | None) -> int | None:
    """The argument `batch_size` of an extractor.

    Raises:
        ValueError: it is neither None nor at least 1.
    """
    return None if batch_size is None else check_integer("batch_size", batch_size, 1, "use null for the device's own")


def images_per_call(extractor: FeatureExtractor, device: torch.device | str) -> int:
    """Images of one network call of an evaluation.

    The extractor's `batch_size` if it has one; on a CPU, or where `image_bytes` is not known, `on_cpu`; on a GPU the
    largest power of two up to `MOST` for which a quarter of the free memory is enough, but at least `on_cpu`. Free is
    also what PyTorch holds in reserve. The number changes features by rounding alone.
    """
    device = torch.device(device)
    if extractor.batch_size is not None or device.type != "cuda" or extractor.image_bytes is None:
        return extractor.batch_size or extractor.on_cpu
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    room = min(MOST, free // 4 // extractor.image_bytes)
    return max(extractor.on_cpu, 1 << room.bit_length() - 1 if room else 0)


class ClassifierFeatures(FeatureExtractor):
    """Penultimate activations of a small classifier that was trained on the data set itself.

    Test accuracy, size and the training command are in `weights/README.md` and in the json file of each classifier.

    Args:
        weights: name of a file in the package's weights folder: "digits" (1x8x8, D=64), "fashion_mnist" (1x28x28,
            D=128) or "fashion_mnist14" (1x14x14, D=64).
        batch_size: images of one network call; null: 64 on a CPU, up to 256 on a GPU by its free memory. It changes
            features by rounding alone.

    Raises:
        ValueError: there are no such weights, or batch_size < 1.
    """

    preprocessing = "x/127.5 - 1"
    image_bytes = 4 * MIB

    def __init__(self, weights: str, batch_size: int | None = None) -> None:
        super().__init__()
        self.batch_size = check_call(batch_size)
        card = WEIGHTS / f"{weights}.json"
        if not card.is_file():
            known = ", ".join(sorted(path.stem for path in WEIGHTS.glob("*.json")))
            raise ValueError(
                f"weights={weights!r} must be one of {known}; train your own with "
                "python -m diffusion_lab.metrics.train_classifier"
            )
        self.card = json.loads(card.read_text(encoding="utf-8"))
        self.name = weights
        self.feature_dim = self.card["network"]["feature_dim"]
        self.channels, self.image_size = self.card["network"]["channels"], self.card["network"]["image_size"]

    def weights_file(self) -> Path:
        path = WEIGHTS / f"{self.name}.pt"
        if not path.is_file() or file_sha256(path) != self.card["sha256"]:
            raise FileNotFoundError(
                f"weights={self.name!r}: {path} is missing or is not the file that {self.name}.json describes; "
                f"install the package again or run python -m diffusion_lab.metrics.train_classifier {self.name}"
            )
        return path

    def load(self) -> nn.Module:
        network = SmallClassifier(**self.card["network"])
        network.load_state_dict(torch.load(self.weights_file(), map_location="cpu", weights_only=True))
        # On a CPU, channels last and 64 images per call take half the time of the defaults.
        return network.to(memory_format=torch.channels_last)


def extract(
    extractor: FeatureExtractor,
    images: Tensor,
    batch_size: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Features:
    """Features of a whole image set, in batches, on the CPU.

    Args:
        extractor: the extractor.
        images: (N,C,H,W) uint8.
        batch_size: images at a time; None: those of one network call.
        device: device of the network.
        progress: whether to show it.

    Returns:
        features (N,D) and logits (N,K), float32 on the CPU.
    """
    parts = images.split(batch_size or images_per_call(extractor, device))
    batches = list(features_of(extractor, parts, len(images), device, progress))
    return Features(*(torch.cat(parts).cpu() for parts in zip(*batches, strict=True)))


def features_of(
    extractor: FeatureExtractor,
    batches: Iterable[Tensor],
    total: int,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Iterator[Features]:
    """Features, on `device`, of images that come in batches; `total` is their number, to show the progress."""
    with shown(f"{extractor.name} features", total, "images", show=progress) as task:
        for batch in batches:
            yield extractor(batch.to(device))
            task.advance(len(batch))


def thousands(n: int) -> str:
    """1000 -> "1k", 50000 -> "50k", 1500 -> "1500"."""
    return f"{n // 1000}k" if n and n % 1000 == 0 else str(n)


class SmallClassifier(nn.Module):
    """Three convolutions and two linear layers.

    Args:
        channels: C of the images.
        image_size: H = W, at least 4.
        num_classes: K.
        width: channels of the first convolution; the others have twice as many.
        feature_dim: D. A Fréchet distance needs at least 2 D images.
        dropout: probability of zeroing a feature before the last layer in training, in [0, 1).
        stride: of the first convolution; 2 quarters the cost of large images.
    """

    def __init__(
        self,
        channels: int,
        image_size: int,
        num_classes: int,
        width: int = 16,
        feature_dim: int = 64,
        dropout: float = 0.0,
        stride: int = 1,
    ) -> None:
        super().__init__()
        side = math.ceil(image_size / stride) // 4
        convolutions = [
            *_convolution(channels, width, stride),
            nn.MaxPool2d(2),
            *_convolution(width, 2 * width),
            nn.MaxPool2d(2),
            *_convolution(2 * width, 2 * width),
        ]
        self.convolutions = len(convolutions)
        self.trunk = nn.Sequential(
            *convolutions,
            nn.Flatten(),
            nn.Linear(2 * width * side**2, feature_dim, bias=False),
            nn.BatchNorm1d(feature_dim),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(feature_dim, num_classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images (N,C,H,W), 0..255 of any dtype -> features (N,D), logits (N,K)."""
        features = self.trunk(self._scaled(images))
        return features, self.head(self.dropout(features))

    def maps(self, images: Tensor) -> Tensor:
        """The last convolution's features: images (N,C,H,W), 0..255 of any dtype -> (N,2 width,h,w)."""
        return self.trunk[: self.convolutions](self._scaled(images))

    def _scaled(self, images: Tensor) -> Tensor:
        return images.to(self.head.weight.dtype) / 127.5 - 1.0


def _convolution(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    # Batch norm has its own shift, so the convolution needs no bias.
    return [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def accuracy(network: SmallClassifier, images: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """Share of images (N,C,H,W) uint8 whose largest logit is their label (N,)."""
    network.eval()
    with torch.no_grad():
        correct = sum(
            (network(x)[1].argmax(1) == y).sum().item()
            for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        )
    return correct / len(images)
