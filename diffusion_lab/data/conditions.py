"""Conditions of the network besides x_t and t: the class label, with dropout, and those of the task.

ImageGeneration    images of the data set's kind, of a class where the data are conditional
SuperResolution    the image of which a small one is given, on which the network is conditioned
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.data.pixels import to_float
from diffusion_lab.data.source import ImageSet, ImageSource
from diffusion_lab.runs.data_record import parse_labels
from diffusion_lab.streams import Streams

Cond = dict[str, Tensor]


class Task(ABC):
    """Conditions made from the images. Labels belong to the data and are not part of a task.

    Attributes:
        names: keywords of the network in the result of `condition`.
        paired: whether a sample is conditioned on a test image, which is then its truth.
    """

    names: tuple[str, ...] = ()
    paired: bool = False

    def check(self, shape: tuple[int, int, int]) -> None:
        """Raise ValueError if the task cannot use images (C,H,W); by default it can use all."""
        return None

    @abstractmethod
    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        """The network's keywords for clean images (B,C,H,W) in the model's range, one row each."""

    def shown(self, x0: Tensor) -> Tensor:
        """(B,C,H,W): in a paired task the condition, as an image of the size of x0 for display."""
        return x0


class ImageGeneration(Task):
    """Generates new images; the network is conditioned on no image."""

    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        return {}


class SuperResolution(Task):
    """low_res (B,C,H/f,W/f): the mean of every f x f block of the image.

    No noise is added to it. The network upsamples it to the size of x_t.

    Reference: Dhariwal and Nichol, "Diffusion models beat GANs on image synthesis", 2021, guided-diffusion
    `scripts/super_res_train.py`: `F.interpolate(batch, small_size, mode="area")`, which is this mean.

    Args:
        factor: f, at least 2, the image's size divided by that of its condition; 4 in the paper (64 to 256 pixels).

    Raises:
        ValueError: the factor is out of range, or does not divide the image size (from `check`).
    """

    names = ("low_res",)
    paired = True

    def __init__(self, factor: int = 4) -> None:
        self.factor = check_integer("factor", factor, 2, "use 4 for 64 to 256 pixels")

    def check(self, shape: tuple[int, int, int]) -> None:
        if shape[1] % self.factor:
            fitting = [f for f in range(2, shape[1] + 1) if shape[1] % f == 0]
            raise ValueError(f"factor={self.factor} must divide the {shape[1]} pixels of the images; use {fitting[0]}")

    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        return {"low_res": F.avg_pool2d(x0, self.factor)}

    def shown(self, x0: Tensor) -> Tensor:
        return F.interpolate(self.condition(x0)["low_res"], scale_factor=self.factor, mode="nearest")


class Conditions:
    """Keywords for the network: {"label": (n,) int64 if conditional} and those of the task.

    Args:
        source: provides the labels and the number of classes, K.
        conditional: whether the network is conditioned on labels.
        label_dropout: probability in [0, 1) that a training image's label is replaced by the null label, as needed for
            guidance (Ho and Salimans 2022, p_uncond; 0.1 in most papers).
        task: makes conditions from the images; None: `ImageGeneration`.

    Raises:
        ValueError: dropout out of range or without labels; from `check`, a source without labels, or images that the
            task cannot use; from `check_labels`, labels outside 0..K-1.
    """

    def __init__(
        self, source: ImageSource, conditional: bool = False, label_dropout: float = 0.0, task: Task | None = None
    ) -> None:
        check_number("label_dropout", label_dropout, "[)", 0, 1, "use 0.1 for guidance, 0.0 for none")
        if label_dropout and not conditional:
            raise ValueError(f"label_dropout={label_dropout} must be 0 without labels; set conditional=true")
        self.source, self.conditional, self.label_dropout = source, conditional, label_dropout
        self.recorded_classes: Sequence[str] | None = None  # of an existing run, whose images may be gone or changed
        self.task = task or ImageGeneration()

    @property
    def num_classes(self) -> int | None:
        """K; None when the model is unconditional."""
        if self.conditional and self.recorded_classes is not None:
            return len(self.recorded_classes)
        return self.source.num_classes if self.conditional else None

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes 0..K-1; None when the model is unconditional."""
        if not self.conditional:
            return None
        return self.source.class_names if self.recorded_classes is None else self.recorded_classes

    @property
    def null_label(self) -> int | None:
        """K, the label of dropped labels; None without label dropout."""
        return self.num_classes if self.label_dropout else None

    @property
    def num_labels(self) -> int | None:
        """Number of values of a label: the classes and the null label; None if the model is unconditional."""
        classes = self.num_classes
        return None if classes is None else classes + (self.null_label is not None)

    @property
    def names(self) -> set[str]:
        """The keywords of the network."""
        return {*self.task.names, *(["label"] if self.conditional else [])}

    def check(self) -> None:
        """Raise ValueError for errors that can be detected before images are loaded."""
        if self.conditional and self.source.num_classes is None:
            raise ValueError(
                f"conditional=true must have labels, and {self.source.name} has none; set conditional=false, or give "
                "a source with classes"
            )
        try:
            self.task.check(self.source.shape)
        except ValueError as error:
            raise ValueError(f"task.{error}") from error

    def check_labels(self, images: ImageSet, split: str) -> None:
        """Raise unless all labels of a split, called `split` in the message, are in 0..K-1."""
        classes = self.num_classes
        if classes is None or images.labels is None:
            return
        wrong = ((images.labels < 0) | (images.labels >= classes)).nonzero().flatten()
        if len(wrong):
            first = int(wrong[0])
            raise ValueError(
                f"source={self.source.name} must have labels in 0..{classes - 1}, but {split} image {first} has "
                f"{int(images.labels[first])} ({len(wrong)} such images); repair the labels or raise the classes"
            )

    def unseen(self, images: ImageSet) -> list[str]:
        """A sentence about the classes that a conditional model would generate without having been trained on any image
        of them; none if there are no such classes."""
        classes = self.num_classes
        if not self.conditional or classes is None or images.labels is None:
            return []
        missing = sorted(set(range(classes)) - set(images.labels.unique().tolist()))
        if not missing:
            return []
        names = self.class_names or [*map(str, range(classes))]
        shown = ", ".join(names[label] for label in missing[:8]) + ", .." * (len(missing) > 8)
        return [
            f"{len(missing)} of the {classes} classes of {self.source.name} have no training image ({shown}), and "
            "samples are made of all: leave these classes out, or hold fewer images out"
        ]

    def of_batch(self, x0: Tensor, label: Tensor | None, streams: Streams, step: int, row: int, total: int) -> Cond:
        """Conditions of a training microbatch x0 (b,C,H,W), rows row..row+b-1 of the `total` rows of step `step`.

        Dropout is drawn for the whole step, so it does not depend on the number of processes or microbatches.
        """
        labels = {} if label is None else {"label": label}
        if label is not None and self.null_label is not None:
            drop = streams.uniform(total, "label_dropout", step)[row : row + len(x0)] < self.label_dropout
            labels["label"] = label.masked_fill(drop.to(label.device, non_blocking=True), self.null_label)
        return labels | self.task.condition(x0)

    def of_images(self, images: ImageSet, ids: Tensor) -> tuple[Tensor, Cond]:
        """Images (n,C,H,W) of a split in the model's range, with their conditions, without label dropout."""
        x0 = to_float(images.take(ids))
        labels = {"label": images.labels[ids]} if self.conditional and images.labels is not None else {}
        return x0, labels | self.task.condition(x0)

    def of_samples(self, ids: Sequence[int]) -> Cond:
        """Conditions of the samples with these ids, on the CPU.

        In a paired task those of test image pi(i mod N), pi a fixed permutation, because folders are sorted by class.
        Otherwise class i mod K, so that all classes are equally frequent; {} for an unconditional model.
        """
        if self.task.paired:
            return self.of_images(self.source.test(), self._test_ids(ids))[1]
        classes = self.num_classes
        return {} if classes is None else {"label": torch.tensor(ids, dtype=torch.int64) % classes}

    def of_samples_with(self, ids: Sequence[int], labels: Any = None) -> Callable[[Sequence[int]], Cond]:
        """A function that gives some of the samples `ids` their conditions: as `of_samples`, or with the given labels.

        Args:
            ids: numbers of all samples.
            labels: classes by number or name as in `parse_labels`, which the samples take in turn; None: those of
                `of_samples`.

        Raises:
            ValueError: as `parse_labels`.
        """
        chosen = parse_labels(labels, self.num_classes, self.class_names or ())
        place = {number: k for k, number in enumerate(ids)}

        def conditions(some: Sequence[int]) -> Cond:
            cond = self.of_samples(some)
            if chosen:
                cond["label"] = torch.tensor([chosen[place[number] % len(chosen)] for number in some])
            return cond

        return conditions

    def given_and_truth(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(n,C,H,W), (n,C,H,W) uint8: the conditions of samples of a paired task, enlarged, and the true images."""
        x0 = to_float(self.source.test().take(self._test_ids(ids)))
        return self.source.to_pixels(self.task.shown(x0)), self.source.to_pixels(x0)

    def blank(self, rows: int, device: torch.device | str = "cpu") -> tuple[Tensor, Cond]:
        """Zeros of the shape of a batch (rows,C,H,W) with conditions, to count operations or to time a network."""
        image = torch.zeros(rows, *self.source.shape, device=device)
        labelled = self.num_classes is not None  # None also if class folders are missing
        labels = {"label": torch.zeros(rows, dtype=torch.int64, device=device)} if labelled else {}
        return image, labels | self.task.condition(image)

    def _test_ids(self, ids: Sequence[int]) -> Tensor:
        order = torch.from_numpy(np.random.RandomState(0).permutation(len(self.source.test())))
        return order[torch.tensor(ids, dtype=torch.int64) % len(order)]
