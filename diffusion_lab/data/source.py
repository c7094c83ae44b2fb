"""The interface of data sets.

    ImageSource   describes the images (channels, size, classes) and finds, checks and loads them
    ImageSet      one split: N images of shape (C,H,W), N labels or none
    ArrayImages   an ImageSet in memory as one tensor

Images from files are uint8 in 0..255; continuous data are float32. A source is lazy: its constructor reads no file,
`check` reads names and headers, `train` and `test` load once and keep the images.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.data.pixels import Extremes, check_range, in_unit_range, to_uint8
from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.failure import MissingData, OtherData
from diffusion_lab.runs.data_record import DataRecord, RecordedSplit, changed_classes, changed_split

FEW = 64  # images that are looked at where it would take long to look at all


class ImageSet(ABC):
    """One split of a data set.

    Attributes:
        labels: (N,) int64, or None when the images have no classes.
        decodes: whether `take` decodes images, so that processes that load batches save time.
    """

    labels: Tensor | None
    decodes: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """N."""

    @abstractmethod
    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        """The images with these numbers: a new tensor (n,C,H,W), uint8 or float32, which the caller may modify."""

    @abstractmethod
    def fingerprint(self) -> str:
        """12 hexadecimal digits that identify the images; labels are not part of it."""

    def label_fingerprint(self) -> str | None:
        """12 hexadecimal digits that identify the labels; None without labels."""
        return None if self.labels is None else hashlib.sha256(self.labels.numpy().tobytes()).hexdigest()[:12]

    def recorded(self) -> RecordedSplit:
        """What the split is, for run.json."""
        return RecordedSplit(len(self), self.fingerprint(), self.label_fingerprint())

    def extremes(self) -> Extremes | None:
        """The extremes of all images, or None, the default, where they are not known without decoding them."""
        return None

    def judged(self) -> Extremes | None:
        """`extremes`, or where these are not known, those of a few images, evenly spaced, if they are floats, of which
        each must be in range; of bytes a part says nothing."""
        of, spaced = self.extremes(), torch.linspace(0, len(self) - 1, min(FEW, len(self))).long()
        if of is None and (few := self.take(spaced)).is_floating_point():
            low, high = few.aminmax()
            of = Extremes(float(low), float(high), True)
        return of

    def all_equal(self) -> bool:
        """Whether all images are known to be the same one."""
        of = self.extremes()
        return len(self) > 1 and of is not None and of.low == of.high


class ArrayImages(ImageSet):
    """Images in memory as one tensor.

    Args:
        images: (N,C,H,H) uint8, or float32 without NaN and infinity.
        labels: (N,) integers, or None.

    Raises:
        ValueError: another shape or type, no images, numbers that are not finite, labels of another length.
    """

    def __init__(self, images: Tensor, labels: Tensor | None = None) -> None:
        shape = tuple(images.shape)
        if len(shape) != 4 or shape[2] != shape[3] or 0 in shape:
            raise ValueError(f"images={shape} must have the shape (N,C,H,H) with N, C, H >= 1; crop to squares")
        if images.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"images={images.dtype} must be uint8 (0..255) or float32; convert them")
        if images.dtype == torch.float32:
            _check_finite(images)
        if labels is not None and tuple(labels.shape) != shape[:1]:
            raise ValueError(f"labels={tuple(labels.shape)} must have the shape ({shape[0]},), one per image")
        self.images = images.contiguous()
        self.labels = None if labels is None else labels.to(torch.int64)
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.images)

    def extremes(self) -> Extremes | None:
        low, high = self.images.aminmax()
        return Extremes(float(low), float(high), self.images.is_floating_point())

    def all_equal(self) -> bool:
        return len(self) > 1 and all(torch.equal(image, self.images[0]) for image in self.images[1:])

    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        return self.images.index_select(0, torch.as_tensor(ids, dtype=torch.int64))

    def fingerprint(self) -> str:
        if self._fingerprint is None:
            digest = hashlib.sha256(f"{self.images.dtype}{tuple(self.images.shape)}".encode())
            digest.update(self.images.numpy().view("uint8").data)
            self._fingerprint = digest.hexdigest()[:12]
        return self._fingerprint


class ImageSource(ABC):
    """Finds, checks and loads the images of one data set.

    Attributes:
        name: short name for tables and metrics.
        channels: C.
        image_size: H = W, pixels.
        num_classes: labels are 0..num_classes-1; None if there are no labels.
        classes: their names, if the class knows them.
        value_range: smallest and largest allowed value of float images; None if they are not bounded.
            uint8 images always have the range 0..255.
        flippable: whether reversing an array from left to right mirrors the image; false for latents.
    """

    name: str
    channels: int
    image_size: int
    num_classes: int | None = None
    classes: Sequence[str] | None = None
    value_range: tuple[float, float] | None = (-1.0, 1.0)
    flippable: bool = True

    def __init__(self) -> None:
        self._loaded: dict[str, ImageSet] = {}
        self._recorded: DataRecord | None = None
        self._labelled = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C,H,W) of one image."""
        return self.channels, self.image_size, self.image_size

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes in the order of their labels: `classes`, by default their numbers; None without."""
        if self.classes is not None:
            return self.classes
        return None if self.num_classes is None else [str(label) for label in range(self.num_classes)]

    def check(self) -> None:
        """Raise FileNotFoundError or ValueError if files are missing or bad, without loading all of them.

        Checks nothing by default.
        """
        return None

    def prepare(self) -> None:
        """Download what is missing, if requested; runs in one process of each machine."""
        return None

    @abstractmethod
    def train_size(self) -> int:
        """Number of training images, if possible without loading them."""

    @abstractmethod
    def load(self, split: str) -> ImageSet:
        """Read one split, "train" or "test"."""

    def train(self) -> ImageSet:
        """The training images."""
        return self._once("train")

    def test(self) -> ImageSet:
        """The test images, which are not trained on."""
        return self._once("test")

    def listed(self, split: str) -> ImageSet:
        """A split of which only number, fingerprint and labels are asked for; by default it is loaded.

        Override it if these are known without decoding the images.
        """
        return self.train() if split == "train" else self.test()

    def record(self) -> DataRecord:
        """What the data are, for run.json. Splits that need not be decoded for it are not."""
        names = self.class_names
        train, test = (self.listed(split).recorded() for split in ("train", "test"))
        channels, height, width = self.shape  # a source of the user may have it as a list
        return DataRecord(self.name, (channels, height, width), train, test, None if names is None else tuple(names))

    def as_recorded(self, record: DataRecord, labelled: bool = False) -> None:
        """Be the data of an existing run: a split that is loaded from now on must be what the run's record says.

        Args:
            record: the run's record.
            labelled: whether the labels must be the same as well, as for a conditional model.
        """
        self._recorded, self._labelled = record, labelled
        self.keep_order(record.classes)

    def keep_order(self, classes: Sequence[str] | None) -> None:
        """Number the classes as an existing run does: in the order of `classes`. By default the order cannot change."""
        return None

    def check_values(self, splits: Sequence[str] = ("train",)) -> None:
        """Raise ValueError if the images are not in their range: bytes 0..255, or float32 in `value_range`.

        A split is judged as a whole. Before bytes are refused, the other split is looked at too. Where the extremes of
        a split are not known, a few images are looked at, because a single float can be out of range.
        """
        for split in splits:
            images = self.train() if split == "train" else self.test()
            of = images.extremes() if self.value_range is None else images.judged()
            if of is not None and in_unit_range(of):
                other = (self.test() if split == "train" else self.train()).extremes()
                of = of if other is None else of.with_those_of(other)
            if of is not None:
                check_range(of, self.name, self.value_range)

    def pixels(self) -> ImageSource:
        """The source of images with which samples are compared: itself, unless the model's data are latents."""
        return self

    def to_pixels(self, x: Tensor) -> Tensor:
        """Output of the model (n,C,H,W) -> images (n,1 or 3,H',W') uint8; by default [-1, 1] becomes 0..255."""
        return to_uint8(x)

    def decoding(self) -> Mapping[str, Any] | None:
        """What turns the model's output into images elsewhere, in plain values; None where [-1, 1] are the images.

        Returns:
            "mean" and "std", a number per channel, and "autoencoder" with "class", "place", "subfolder" and
            "weights_sha256": images = D(std x + mean) in [-1, 1]. The class is one of diffusers.

        Raises:
            FileNotFoundError, ValueError: the files that say it are missing or damaged.
        """
        return None

    def check_pixels(self) -> None:
        """Raise ValueError or FileNotFoundError if `to_pixels` lacks something here, before samples are drawn; by
        default it needs nothing."""
        return None

    def loss_floor(self, schedule: NoiseSchedule, labelled: bool = False) -> Tensor | None:
        """(T,) float64: the least expected epsilon loss of any model on these data, where there is a closed form.

        Args:
            schedule: the noise schedule.
            labelled: whether the model is given the labels.
        """
        return None

    def _once(self, split: str) -> ImageSet:
        if split not in self._loaded:
            try:
                self._loaded[split] = self.load(split)
            except FileNotFoundError as error:
                raise MissingData(str(error)) from error
            try:
                self._check_recorded(split)
            except OtherData:
                del self._loaded[split]
                raise
        return self._loaded[split]

    def _check_recorded(self, split: str) -> None:
        """Raise OtherData if a split differs from that of the run whose data these are."""
        record, labelled = self._recorded, self._labelled
        if record is None:
            return
        then = record.train if split == "train" else record.test
        changed = changed_split(split, then, self.listed(split).recorded(), labelled)
        names = self.class_names if labelled else None
        changed += changed_classes(record.classes, None if names is None else tuple(names))
        if changed:
            raise OtherData(
                f"source={self.name} must be the data that the run was trained with, and has changed: "
                f"{'; '.join(changed)}; restore the data, or train a new run with them"
            )


def _check_finite(images: Tensor) -> None:
    """Raise ValueError if a number is not finite; sums are checked first, which needs no mask of the whole array."""
    if torch.isfinite(images.sum(dtype=torch.float64)):
        return
    bad = (~torch.isfinite(images.flatten(1).sum(1))).nonzero().flatten()
    if len(bad):
        first = bad[:8].tolist()
        raise ValueError(
            f"images={len(bad)} of {len(images)} must not contain NaN or infinity, the first are {first}; "
            "remove or repair them"
        )
