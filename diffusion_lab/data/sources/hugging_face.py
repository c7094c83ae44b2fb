"""Any image data set that the `datasets` library can read: parquet files, a folder, or a name on the Hugging Face hub.

Images stay encoded in the library's memory-mapped table and are decoded like the files of a folder (`data/pixels.py`).
Every image is checked once before training, and the result is cached under the library's own fingerprint of the table,
which depends on the table's origin and time of change, not on its content. The fingerprint of the images here is that
of their bytes, so it is the same for the same images in another file or on another machine.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, WrittenPath
from diffusion_lab.data.pixels import Square
from diffusion_lab.data.sources.encoded_images import EncodedImages, EncodedSource, random_split
from diffusion_lab.data.sources.hub import Unreadable, copies, open_hub, open_local
from diffusion_lab.data.sources.scan import Seen, scan_rows

log = logging.getLogger(__name__)


class HuggingFace(EncodedSource):
    """Images (channels, image_size, image_size) of a table with a column of encoded images.

    `path` is searched for on this machine first: a folder (of parquet files, of images, or written by `save_to_disk`),
    one parquet file, or a pattern of several, which make one split. Any other name, such as uoft-cs/cifar10, is one of
    the hub: the library downloads it on the first check. Without network its copy on this machine is used.

    Args:
        path: folder, parquet file, pattern of parquet files, or OWNER/NAME on the hub, which the library downloads.
        image_size: pixels along a side, after resizing the shorter side and cropping the centre.
        channels: 3 for RGB, 1 for grey.
        resize: "bicubic", or "box_bicubic" as ImageNet is prepared (`data/pixels.py`).
        subset: the library's "configuration" of a data set that has several; None: its only one.
        revision: commit or tag on the hub; None: the newest. Ignored when a copy is used without network.
        train_split: name of the training split.
        test_split: name of the test split; None: a random `test_share` of train_split is held out.
        image_column: column of the images.
        label_column: column of class labels or of integers >= 0; None: no labels.
        test_share: share that is held out when there is no test_split, in (0, 1).
        min_size, on_bad, memory_mb, cache_gb: as `EncodedSource`.
        cache_dir: folder of the checks' results, decoded images and the library's copies; None:
            $DIFFUSION_LAB_CACHE, else diffusion-lab in the user's folder of caches, and the library's own folder.

    Raises:
        ValueError: an argument outside its range, or one that what is at `path` has no use for; a missing split or
            column; bad images; labels that are not classes (from `check` and on loading).
        FileNotFoundError: the library is not installed, nothing is at `path`, or the hub cannot be reached (as above).
    """

    def __init__(
        self,
        path: ReadPath,
        image_size: int,
        channels: int = 3,
        resize: str = "bicubic",
        subset: str | None = None,
        revision: str | None = None,
        train_split: str = "train",
        test_split: str | None = None,
        image_column: str = "image",
        label_column: str | None = None,
        test_share: float = 0.1,
        min_size: int | None = None,
        on_bad: str = "error",
        memory_mb: float = 4096,
        cache_dir: WrittenPath | None = None,
        cache_gb: float = 16,
    ) -> None:
        square = Square(image_size, channels, resize)
        super().__init__(square, test_share, min_size, on_bad, memory_mb, cache_dir, cache_gb)
        if test_split == train_split:
            raise ValueError(f"test_split={test_split} must not be train_split; use null to hold out test_share of it")
        self.path, self.subset, self.revision = str(path), subset, revision
        self.name = Path(self.path).stem if self.path.endswith(".parquet") else Path(self.path).name
        self.name = self.name.strip("*-_.") or Path(self.path).parent.name or "hugging_face"
        self.splits = {"train": train_split} | ({"test": test_split} if test_split else {})
        self.image_column, self.label_column = image_column, label_column
        self._library_dir = str(self.cache_dir / "datasets") if cache_dir else None
        self._tables: dict[str, Any] = {}
        self._labels: dict[str, Tensor] = {}
        self._seen: dict[str, list[Seen]] = {}

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the label column, or its largest integer in the training split + 1; None: no labels.
        0 if the data set cannot be opened; `check` then raises the error."""
        if self.label_column is None:
            return None
        try:
            self._open()
        except (ValueError, FileNotFoundError):
            return 0
        named = getattr(self._tables["train"].features[self.label_column], "num_classes", None)
        return named or int(self._labels["train"].max()) + 1

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the label column's classes, or numbers if it has integers; None without labels."""
        if not self.num_classes:
            return None
        return getattr(self._tables["train"].features[self.label_column], "names", None) or super().class_names

    def check(self) -> None:
        self._open()
        if self._ids:
            return
        good = {split: self._good_rows(split) for split in self.splits}
        if "test" not in good:
            ids = random_split(len(good["train"]), self.test_share)
            good = {split: [good["train"][i] for i in ids[split]] for split in ids}
        if not all(good.values()):
            raise ValueError(f"path={self.path} must hold images to train and to test with; its splits have too few")
        self._ids = good

    def listed(self, split: str) -> EncodedImages:
        self.check()
        table = split if split in self._tables else "train"
        ids, seen = self._ids[split], self._seen[table]
        labels = self._labels[table][ids] if self.label_column else None
        read = partial(_encoded, self._images(table), self._files)
        return EncodedImages(read, ids, [seen[i] for i in ids], self.square, labels)

    def _total(self) -> int:
        return sum(map(len, self._ids.values()))

    def _open(self) -> None:
        """The tables of the wanted splits, with the wanted columns."""
        if self._tables:
            return
        try:
            tables = self._library_tables()
        except Unreadable as error:
            raise ValueError(
                f"path={self.path} must be a data set that the datasets library can read, but it raised: {error}; use "
                "another path, subset or revision"
            ) from error
        for key, split in (("train_split", self.splits["train"]), ("test_split", self.splits.get("test"))):
            if split is not None and split not in tables:
                null = ", or null to hold out test_share" if key == "test_split" else ""
                raise ValueError(f"{key}={split} must be a split of {self.path}; use {' or '.join(tables)}{null}")
        unused = [f"split {name} ({len(tables[name])} rows)" for name in tables if name not in self.splits.values()]
        if unused:
            log.info("%s: left out: %s", self.path, ", ".join(unused))
        tables = {key: tables[name] for key, name in self.splits.items()}
        for table in tables.values():
            _check_columns(table, self.image_column, self.label_column)
        if self.label_column:
            self._labels = {key: _integers(table, self.label_column) for key, table in tables.items()}
        self._tables = tables

    def _library_tables(self) -> Any:
        files = sorted(glob.glob(str(Path(self.path).expanduser()), recursive=True))
        if files:
            if self.revision is not None:
                raise ValueError(
                    f"revision={self.revision} must be null, because {self.path} is read from this machine"
                )
            return open_local(files, self.path, self.subset, self._library_dir)
        plain = all(part.strip(".~") for part in self.path.split("/")) and not glob.has_magic(self.path)
        if not plain or self.path.count("/") > 1 or self.path.endswith(".parquet"):
            raise FileNotFoundError(
                f"path={self.path} must be a folder, a parquet file, a pattern of parquet files or OWNER/NAME of the "
                f"Hugging Face hub; there is none at {Path(self.path).expanduser().absolute()}"
            )
        return open_hub(self.path, self.subset, self.revision, self._library_dir)

    def _images(self, table: str) -> Any:
        """The column of images alone, as {"bytes": ..., "path": ...}."""
        from datasets import Image

        columns = self._tables[table].select_columns([self.image_column])
        return columns.cast_column(self.image_column, Image(decode=False))

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        """The folders whose files a row may name in place of bytes."""
        own = Path(self.path).expanduser()
        named = (own,) if own.is_dir() else copies(self.path, self._library_dir) if not glob.glob(str(own)) else ()
        return (*named, *(folder.resolve() for folder in named))  # the library follows links

    def _good_rows(self, table: str) -> list[int]:
        images = self._images(table)
        names = [f"{self.splits[table]}[{i}]" for i in range(len(images))]
        kept = self.cache_dir / f"scan-hf-{self._tables[table]._fingerprint}-{self.image_column}.json"
        self._seen[table] = seen = scan_rows(names, partial(_encoded, images, self._files), kept)
        good = self._usable(f"path={self.path}", seen)
        self._log_modes(f"{self.path}[{self.splits[table]}]", [seen[i] for i in good], len(seen))
        return good


def _encoded(table: Any, files: Sequence[Path], row: int) -> bytes:
    """The encoded image, from the table, or from a file that the library found in one of the folders `files`.

    Raises:
        ValueError: the row holds no bytes. A table may come from anybody, and could name any file of this machine.
    """
    (image,) = table[row].values()
    if image is None:
        raise ValueError("missing")
    if image["bytes"] is not None:
        return image["bytes"]
    path = Path(os.path.abspath(image["path"] or ""))
    if not image["path"] or not any(path.is_relative_to(os.path.abspath(folder)) for folder in files):
        raise ValueError("holds no bytes, and a file that is named in their place is not read; write the bytes")
    return path.read_bytes()


def _check_columns(table: Any, image_column: str, label_column: str | None) -> None:
    from datasets import ClassLabel, Image, Value

    for key, name in (("image_column", image_column), ("label_column", label_column)):
        if name is not None and name not in table.features:
            raise ValueError(f"{key}={name} must be a column of the data set; use {' or '.join(table.features)}")
    feature = table.features[image_column]
    encoded = isinstance(feature, dict) and "bytes" in feature
    if not (isinstance(feature, Image) or encoded or getattr(feature, "dtype", "") in ("binary", "large_binary")):
        images = [name for name, kind in table.features.items() if isinstance(kind, Image)]
        raise ValueError(
            f"image_column={image_column} must hold encoded images; use {' or '.join(images) or 'another data set'}"
        )
    if label_column is None or isinstance(table.features[label_column], ClassLabel):
        return
    kind = table.features[label_column]
    if not (isinstance(kind, Value) and "int" in kind.dtype):
        raise ValueError(
            f"label_column={label_column} must hold class labels or integers, not {kind}; turn it into numbers with "
            "the library's class_encode_column, or use null"
        )


def _integers(table: Any, label_column: str) -> Tensor:
    """(N,) int64: the column of labels."""
    column = table.with_format("arrow")[:][label_column]
    if column.null_count:
        raise ValueError(
            f"label_column={label_column} must have a label in every row, and {column.null_count} have none; use null "
            "to train without labels"
        )
    return torch.from_numpy(column.to_numpy().astype("int64"))
