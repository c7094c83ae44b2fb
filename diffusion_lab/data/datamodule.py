"""The data module: uint8 images in memory, flipped and scaled on the device.

The model is given training batches {"image": (b,C,H,W) float32, "index": (b,) int64}, images and their numbers, with
their conditions (`conditions.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data.conditions import Conditions, Task
from diffusion_lab.data.image_order import ImageOrder, choose
from diffusion_lab.data.loading import TrainingRows, ValBatch, ValBatches, training_loader
from diffusion_lab.data.order import EpochOrder, StepOrder, check_batch_size
from diffusion_lab.data.pixels import doubts, to_float
from diffusion_lab.data.source import ImageSet, ImageSource
from diffusion_lab.failure import MissingData
from diffusion_lab.runs.data_record import DataRecord
from diffusion_lab.streams import Streams
from diffusion_lab.workers import usual_workers

log = logging.getLogger(__name__)


class ImageDataModule(LightningDataModule):
    """Training batches in an order that is a function of (seed, step), and validation and reference images.

    Horizontal flips of step k are drawn for the whole global batch, keyed ("augment", k); each process and microbatch
    takes its rows, so they do not depend on ranks or workers. Rank, world size and step come from the trainer.

    Args:
        source: finds, checks and loads the images.
        batch_size: images of one optimizer step over all devices and accumulation steps.
        accumulate: accumulation steps of one optimizer step.
        flip: whether every training image is mirrored left to right with probability 1/2.
        conditional: whether the network is given the class.
        label_dropout: probability in [0, 1) that a training image's label is dropped, as guidance needs it; 0.1 for
            solver=guided.
        task: what is generated, see `Conditions`.
        num_workers: processes that load batches, for each training process; they change no bit of a batch. null: none
            for images in memory, where they lose; for images that are decoded for every batch, of which a process
            decodes about 200 photographs of ImageNet in a second, one for each of its cores but one, at most 8. Its
            cores are those that it may use, divided by the jobs of a sweep at a time and the training processes of a
            machine; on SLURM those of its task.
        val_images: number of images of the test split for validation, >= 1; None: all.
        seed: seed of the order and the flips.
        features: the feature extractor that metrics of generated images need, or None.
        order: which images a step trains on; None: each image once in an epoch, in a new permutation.

    Raises:
        ValueError: a number outside its range; from `check` and `setup`, errors in the images, in the labels, or in the
            batch size for this number of processes.
    """

    def __init__(
        self,
        source: ImageSource,
        batch_size: int,
        accumulate: int = 1,
        flip: bool = False,
        conditional: bool = False,
        label_dropout: float = 0.0,
        task: Task | None = None,
        num_workers: int | None = None,
        val_images: int | None = None,
        seed: int = 0,
        features: Any = None,
        order: ImageOrder | None = None,
    ) -> None:
        super().__init__()
        check_batch_size(batch_size, 1, accumulate)
        if num_workers is not None:
            check_integer("num_workers", num_workers, 0, "use 0 for images in memory")
        if val_images is not None:
            check_integer("val_images", val_images, 1, "use null for all test images")
        self.source = source
        self.batch_size, self.accumulate = batch_size, accumulate
        self.flip, self.conditions = flip, Conditions(source, conditional, label_dropout, task)
        self.num_workers, self.val_images = num_workers, val_images
        self.features = features
        self.streams = Streams(seed)
        self.image_order = order
        self.order: StepOrder | None = None
        self._recorded: DataRecord | None = None
        self._doubted = False

    # -- what the data are --------------------------------------------------------------------------------------

    @property
    def features(self) -> Any:
        """The feature extractor, or None. One that is made from the images has a method `of_data`, which is given
        them."""
        return self._features

    @features.setter
    def features(self, extractor: Any) -> None:
        self._features = extractor
        if hasattr(extractor, "of_data"):
            extractor.of_data(self)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C,H,W) of one image."""
        return self.source.shape if self._recorded is None else self._recorded.shape

    @property
    def num_classes(self) -> int | None:
        """Number of classes on which the network is conditioned; None if it is unconditional."""
        return self.conditions.num_classes

    def fingerprint(self) -> str:
        """12 hexadecimal digits that identify the training images."""
        return self.source.train().fingerprint()

    def describe(self) -> DataRecord:
        """What the data are, for the record of a run."""
        with _source_errors():
            return self.source.record()

    def as_recorded(self, record: DataRecord) -> None:
        """Be the data of an existing run: the classes are those of its record, for which no image is needed, and the
        images are compared with it when they are loaded."""
        self._recorded = record
        self.source.as_recorded(record, self.conditions.conditional)
        self.conditions.recorded_classes = record.classes

    # -- checks -------------------------------------------------------------------------------------------------

    def check(self, world_size: int = 1) -> None:
        """Raise ValueError or FileNotFoundError for errors that can be detected before loading or downloading."""
        check_batch_size(self.batch_size, world_size, self.accumulate)  # first, because it does not need the images
        with _source_errors():
            self.source.check()
            if self.features is not None:
                self.source.pixels()
        if self.flip and not self.source.flippable:
            raise ValueError(
                f"flip=true must have images that can be mirrored, and {self.source.name} cannot; set flip=false, and "
                "give `diffusion-lab encode` flips=true instead"
            )
        self.conditions.check()
        self._check_enough(self.source.train_size(), world_size)

    def _check_enough(self, num_images: int, world_size: int) -> None:
        if num_images < self.batch_size:
            unit = world_size * self.accumulate
            cure = f"use at most {num_images // unit * unit}" if num_images >= unit else "give more images"
            raise ValueError(
                f"batch_size={self.batch_size} must not exceed the {num_images} training images of "
                f"{self.source.name}; {cure}"
            )

    # -- Lightning's hooks --------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Download and scan, on one process of each machine."""
        with _source_errors():
            self.source.check()
            self.source.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Load the training images and check their values, and them against the batch size and the classes."""
        world_size = self.trainer.world_size if self.trainer else 1
        self.check(world_size)
        with _source_errors():
            images = self.source.train()
            self.source.check_values()
        self._check_enough(len(images), world_size)
        self.conditions.check_labels(images, "training")
        if not self._doubted and (self.trainer is None or self.trainer.global_rank == 0):
            which, bounds = f"training images of {self.source.name}", self.source.value_range
            of = None if bounds is None else images.judged()
            found = doubts(which, len(images), images.all_equal(), of, bounds)
            for doubt in (*found, *self.conditions.unseen(images)):
                log.warning(doubt)
        self._doubted = True

    def train_dataloader(self) -> Iterable[dict[str, Any]]:
        """Endless, or of one pass over the images (`EpochOrder`) if the trainer's number of epochs is limited."""
        trainer = self.trainer
        accumulate = getattr(trainer, "accumulate_grad_batches", self.accumulate)
        if accumulate != self.accumulate:
            raise ValueError(
                f"accumulate={self.accumulate} must be the trainer's accumulate_grad_batches={accumulate}, into which "
                f"a batch is divided; use ImageDataModule(.., accumulate={accumulate})"
            )
        endless = getattr(trainer, "max_epochs", -1) in (None, -1)
        images, order = self.source.train(), self.image_order
        self.order = (StepOrder if endless else EpochOrder)(
            len(images),
            self.batch_size,
            self.streams,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
            accumulate=self.accumulate,
            start=lambda: self.trainer.global_step if self.trainer else 0,
            choose=None if order is None else choose(order, images, self.batch_size, self.streams),
        )
        on_cuda = trainer is not None and trainer.strategy.root_device.type == "cuda"
        rows = TrainingRows(images, self.conditions.conditional)
        workers = self.num_workers
        if workers is None:
            workers = usual_workers(trainer.num_devices if trainer else 1) if images.decodes else 0
        return training_loader(rows, self.order, workers, pin_memory=on_cuda)

    def val_dataloader(self) -> ValBatches:
        """The validation images for Lightning's own validation; `callbacks.Validation` reads them without it."""
        trainer = self.trainer
        place = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        rows = max(1, self.batch_size // (self.accumulate * place[1]))
        return ValBatches(
            partial(self.val_batches, rows, *place), len(range(place[0], self.num_val_images, place[1])), rows
        )

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Flip, scale and add conditions, on the device. Batches that are not from `train_dataloader` are unchanged."""
        if not isinstance(batch, dict) or "step" not in batch:
            return batch
        image, step, row = batch["image"], batch["step"], batch["row"]
        if self.flip:
            rows = self.flips(step)[row : row + len(image)].nonzero().flatten().to(image.device, non_blocking=True)
            # In place on the batch's own copy: torch.where over all pixels takes three times as long.
            image.index_copy_(0, rows, image.index_select(0, rows).flip(-1))
        x0 = to_float(image)
        cond = self.conditions.of_batch(x0, batch.get("label"), self.streams, step, row, self.batch_size)
        return {"image": x0, "index": batch["index"]} | cond

    def flips(self, step: int) -> Tensor:
        """(G,) bool: which rows of the step's global batch are mirrored; drawn on the CPU, so equal for all devices."""
        return self.streams.uniform(self.batch_size, "augment", step) < 0.5

    # -- images to compare with ---------------------------------------------------------------------------------

    def reference(self, split: str, n: int | None = None) -> Tensor:
        """(n,C,H,W) uint8 (or float32 data) of "train" or "test", the same for every seed; None: all, in order.

        n images are a fixed random choice, because folders are sorted by class.

        Raises:
            ValueError: an unknown split, or n is not in 1..N.
        """
        images = self._split(split)
        return images.take(_choice(split, len(images), n))

    @property
    def num_val_images(self) -> int:
        """Number of images of `val_batches`, over all ranks."""
        total = len(self.source.test())
        return total if self.val_images is None else min(self.val_images, total)

    def val_batches(self, batch_size: int, rank: int = 0, world_size: int = 1) -> Iterator[ValBatch]:
        """The validation images of this rank, each exactly once over all ranks, without padding or flips.

        Ranks may get different numbers of batches, so reduce sums and counts, not means, after the last batch.
        """
        images = self._split("test")
        self.conditions.check_labels(images, "test")
        chosen = _choice("test", len(images), self.num_val_images)
        for ids in torch.arange(rank, len(chosen), world_size).split(batch_size):
            image, cond = self.conditions.of_images(images, chosen[ids])
            yield ValBatch(image, ids, cond)

    def _split(self, split: str) -> ImageSet:
        if split not in ("train", "test"):
            raise ValueError(f"split={split} must be train or test; use test for images that are not trained on")
        with _source_errors():
            return self.source.train() if split == "train" else self.source.test()


@contextmanager
def _source_errors() -> Iterator[None]:
    """Prefix errors of the source with its argument's name here: `source.root=...`."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        message, kind = str(error), MissingData if isinstance(error, FileNotFoundError) else type(error)
        raise kind(message if message.startswith("source") else f"source.{message}") from error


def _choice(split: str, total: int, n: int | None) -> Tensor:
    """(n,) int64 ascending: n of `total` images, by NumPy's RandomState(0), which is stable across versions."""
    if n is None or n == total:
        return torch.arange(total)
    if not 1 <= n < total:
        raise ValueError(f"n={n} must lie in 1..{total}, the images of the {split} split; use null for all")
    return torch.from_numpy(np.sort(np.random.RandomState(0).permutation(total)[:n]))
