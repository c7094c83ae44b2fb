"""Features of a data set's own: the extractor for images that no published network is made for.

The network is trained from the data set's training images (`learn_features.py`) when an evaluation first needs it, and
kept in the folder of caches under a hash of all that it depends on: fingerprints of images and labels, shape, mirroring
and the version of the training. Results are named `fd1k_own`; the hash of the weights is in their protocol, by which
values of other images, which have another network, are told apart.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import ReadPath
from diffusion_lab.cache_folder import cache_folder, one_at_a_time
from diffusion_lab.data import ImageDataModule, ImageSource
from diffusion_lab.data.pixels import as_bytes
from diffusion_lab.distributed import broadcast_, rank
from diffusion_lab.failure import Interruption
from diffusion_lab.files import replacing
from diffusion_lab.metrics.features import MIB, FeatureExtractor, SmallClassifier, check_call
from diffusion_lab.metrics.learn_features import DIMS, FORMAT, LARGEST, alone, at_most, dim_for, learn, new_network
from diffusion_lab.metrics.reference import digest_of
from diffusion_lab.progress import progress
from diffusion_lab.streams import Streams

MOST = 8192  # images to learn from
READ = 256  # images that are read at a time


class OwnFeatures(FeatureExtractor):
    """Features of a small network that is trained, once, from the training images of the data set: with their labels
    where it has at least two classes, else self-supervised.

    It takes about a minute of one thread and is kept in the folder of caches. Images larger than 64 pixels are averaged
    to 64 first, so finer detail is not seen. There are 64 features, 32 for fewer than 256 training images, and 16 for
    fewer than 128. Of more than 8,192 images a fixed random choice is used.

    Args:
        weights: file that another machine has in `features` in its folder of caches, to measure by the same network,
            because the rounding of another processor gives another one; null: this machine's, which is trained if it is
            not there.
        batch_size: images of one network call; null: 64 on a CPU, up to 256 on a GPU by its free memory. It changes
            features by rounding alone.

    Raises:
        ValueError: batch_size < 1; from `check`, fewer than 64 training images, or no weights of them in the file.
    """

    name = "own"
    preprocessing = f"means over pixels to at most {LARGEST}x{LARGEST}, x/127.5 - 1"
    data_classes = True
    image_bytes = 4 * MIB

    def __init__(self, weights: ReadPath | None = None, batch_size: int | None = None) -> None:
        super().__init__()
        self.path, self.batch_size = weights, check_call(batch_size)
        self._data: ImageDataModule | None = None

    def of_data(self, data: ImageDataModule) -> None:
        """Be the extractor of a data set, whose images are only read when the features are needed."""
        self._data = data

    @property
    def data(self) -> ImageDataModule:
        """The data set."""
        if self._data is None:
            raise ValueError(
                "_target_=OwnFeatures must be the extractor of the data set from which it is trained; use "
                "features=own, and ${dataset.features} elsewhere"
            )
        return self._data

    @property
    def source(self) -> ImageSource:
        """The images that it judges."""
        return self.data.source.pixels()

    @property
    def channels(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.source.channels

    @property
    def image_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.source.image_size

    @property
    def has_classes(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        with suppress(FileNotFoundError, ValueError):  # images that are not there, as in `_count`
            return (self.source.num_classes or 1) > 1
        return False

    @property
    def feature_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return dim_for(self._count()) or DIMS[-1]

    def _count(self) -> int:
        """Number of training images; that of the largest dimension if they are not there, which the check of the data
        reports."""
        try:
            return self.source.train_size()
        except (FileNotFoundError, ValueError):
            return 4 * DIMS[0]

    def check(self) -> None:
        count, least = self._count(), 4 * DIMS[-1]
        if count < least:
            raise ValueError(
                f"weights={self.path or 'null'} must be trained from at least {least} images, and {self.source.name} "
                f"has {count} for training, too few for a distance; give more, or measure none with metrics=none"
            )
        if self.path is not None:
            self._read(self.weights_file())

    def weights_file(self) -> Path:
        """The file that `weights` names, or this machine's, which may not be there yet."""
        if self.path is None:
            return cache_folder() / "features" / f"own-{self.source.name}-{digest_of(self.record)}.pt"
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise ValueError(f"weights={self.path} must be a file; use null to train the features on this machine")
        return path

    @cached_property
    def record(self) -> dict[str, Any]:
        """All that the weights depend on, but for the machine."""
        images = self.source.listed("train")
        return {
            "format": FORMAT,
            "fingerprint": images.fingerprint(),
            "labels": images.label_fingerprint() if self.has_classes else None,
            "classes": self.source.num_classes if self.has_classes else None,
            "images": len(images),
            "shape": list(self.source.shape),
            "feature_dim": self.feature_dim,
            "mirrored": self.data.flip,
        }

    @cached_property
    def weights_sha256(self) -> str:
        """sha256 of the weights themselves, 64 hexadecimal digits, whatever the file around them."""
        digest = sha256()
        for key, value in sorted(self._network[0].state_dict().items()):
            digest.update(f"{key}{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def prepare(self, device: torch.device | str) -> None:
        """The first process trains or reads the network, and all others are given its weights."""
        with torch.inference_mode(False):  # tensors that are made inside could not be written to later
            for value in self._network[0].to(device).state_dict().values():
                value.copy_(broadcast_(value.contiguous()))

    def load(self) -> nn.Module:
        with alone():
            # On a CPU, channels last and 64 images per call take half the time of the defaults.
            return _Judge(self._found(), self.has_classes).to(memory_format=torch.channels_last)

    def _found(self) -> SmallClassifier:
        """The network, read, or else trained and saved; in all processes but the first untrained, until `prepare`."""
        if rank():
            return self._new()
        path = self.weights_file()
        if self.path is not None:
            return self._read(path)
        with one_at_a_time(path):
            with suppress(FileNotFoundError, ValueError):
                return self._read(path)
            network = self._trained()
            with suppress(OSError), replacing(path) as file:
                torch.save({"record": self.record, "state": network.state_dict()}, file)
        return network

    def _new(self) -> SmallClassifier:
        record = self.record
        return new_network(record["shape"], record["feature_dim"], min(record["images"], MOST), record["classes"])

    def _trained(self) -> SmallClassifier:
        """A new network, trained from at most `MOST` images."""
        images, what = self.source.train(), f"features of {self.source.name}"
        chosen = torch.randperm(len(images), generator=Streams(0).generator("cpu", "images"))[:MOST].sort().values
        parts = []
        with progress(f"images for {what}", len(chosen), "images") as task:
            for ids in chosen.split(READ):
                parts.append(at_most(as_bytes(images.take(ids))))
                task.advance(len(ids))
        labels = images.labels[chosen] if self.has_classes and images.labels is not None else None
        learn(network := self._new(), torch.cat(parts), labels, self.data.flip, what)
        return network

    def _read(self, path: Path) -> SmallClassifier:
        """The network of a file.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is another file, or of other images.
        """
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            record, state = content["record"], content["state"]
            different = [key for key, value in self.record.items() if record.get(key) != value]
            with torch.random.fork_rng(devices=[]):  # one that is then trained begins with the first numbers
                network = self._new()
            if not different:
                network.load_state_dict(state)
        except (FileNotFoundError, Interruption):
            raise
        except Exception:  # torch raises more than ten classes of errors for files that it did not write
            raise ValueError(
                f"weights={path} must be a file of trained features, as they lie in {cache_folder() / 'features'}; use "
                "null to train them on this machine"
            ) from None
        if different:
            listed = ", ".join(f"{key} is {record.get(key)} and must be {self.record[key]}" for key in different)
            raise ValueError(f"weights={path} must be trained from these images: {listed}; use null to train them here")
        return network.eval()


class _Judge(nn.Module):
    """Images (N,C,S,S) uint8 -> features (N,D), and the logits (N,K) of the classes or (N,0)."""

    def __init__(self, network: SmallClassifier, has_classes: bool) -> None:
        super().__init__()
        self.network, self.has_classes = network, has_classes

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.network(at_most(images))
        return features, logits if self.has_classes else logits[:, :0]

    def maps(self, images: Tensor) -> Tensor:
        return self.network.maps(at_most(images))
