"""CIFAR-10: 50,000 training and 10,000 test colour images of 32 x 32 pixels, 10 classes.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. The "python version" of the archive:
each batch file is a pickled dict with "data" (n, 3072) uint8, channel after channel, row after row, and "labels", n
integers. Pickles can run code, so they are read by `read_batch`, which accepts dicts, lists, numbers, strings and
arrays of bytes, and refuses everything else.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffusion_lab.arguments import DownloadPath
from diffusion_lab.data.source import ArrayImages, ImageSource
from diffusion_lab.data.sources.published_files import fetch

ARCHIVE, FOLDER = "cifar-10-python.tar.gz", "cifar-10-batches-py"
MD5 = "c58f30108f718f92721af3b95e74349a"
_INTACT: set[tuple[tuple[str, int, int], ...]] = set()  # files that this process has checked
BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}


class CIFAR10(ImageSource):
    """Images (3,32,32) with labels 0..9 from torchvision's layout: the archive in `root`, or its unpacked folder.

    Args:
        root: folder that holds cifar-10-python.tar.gz or cifar-10-batches-py/.
        download: whether to fetch the archive, 170 MB, into `root` with torchvision when neither is there.

    Raises:
        FileNotFoundError: neither is complete (from `check` and on loading).
        ValueError: a file is damaged, or holds more than plain data (from `check` and on loading).
    """

    name = "cifar10"
    channels = 3
    image_size = 32
    num_classes = 10
    classes = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())

    def __init__(self, root: DownloadPath, download: bool = False) -> None:
        super().__init__()
        self.root = Path(root).expanduser()
        self.download = download

    def check(self) -> None:
        """Check every byte, once per process; this takes about a second for the published archive."""
        if not self.download:
            self._require()
        if self._present():
            self._check_intact()

    def prepare(self) -> None:
        if self.download and not self._present():
            fetch("CIFAR10", self.root, self._present)

    def train_size(self) -> int:
        return 50_000  # as published; counting would mean unpacking

    def load(self, split: str) -> ArrayImages:
        self._require()
        read = self._read_folder if not _missing(self.root) else self._read_archive
        batches = [self._parse(name, content) for name, content in read(BATCHES[split]).items()]
        images = np.concatenate([data for data, _ in batches]).reshape(-1, 3, 32, 32)
        labels = [label for _, labels in batches for label in labels]
        return ArrayImages(torch.from_numpy(images), torch.tensor(labels))

    def _present(self) -> bool:
        return not _missing(self.root) or (self.root / ARCHIVE).is_file()

    def _require(self) -> None:
        if not self._present():
            missing = _missing(self.root)
            partial = f" ({FOLDER}/ lacks {', '.join(missing)})" if (self.root / FOLDER).is_dir() else ""
            raise FileNotFoundError(
                f"root={self.root} must hold {ARCHIVE} (md5 {MD5}) or its unpacked folder {FOLDER}/{partial}; put "
                f"it into {self.root.absolute()}, or set download=true (torchvision fetches 170 MB)"
            )

    def _check_intact(self) -> None:
        """Raise the error of `load` for a damaged file; a checked file is recognised by its size and time of change."""
        whole = not _missing(self.root)
        names = [name for batches in BATCHES.values() for name in batches]
        files = [self.root / FOLDER / name for name in names] if whole else [self.root / ARCHIVE]
        stamp = tuple((str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        if stamp in _INTACT:
            return
        if whole:
            for name in names:
                self._parse(name, self._read_folder([name])[name])
        elif _md5(self.root / ARCHIVE) != MD5:  # not the published file, but possibly intact
            for name, content in self._read_archive(names).items():
                self._parse(name, content)
        _INTACT.add(stamp)

    def _read_folder(self, names: list[str]) -> dict[str, bytes]:
        return {name: (self.root / FOLDER / name).read_bytes() for name in names}

    def _read_archive(self, names: list[str]) -> dict[str, bytes]:
        """Read files of the archive in memory. The stream is read to its end, where gzip stores its checksum."""
        path = self.root / ARCHIVE
        contents: dict[str, bytes] = {}
        try:
            with gzip.open(path) as stream:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        file = archive.extractfile(member) if Path(member.name).name in names else None
                        if file is not None:
                            contents[Path(member.name).name] = file.read()
                while stream.read(2**20):
                    pass
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise self._damaged(path, str(error)) from error
        if set(contents) != set(names):
            raise self._damaged(path, f"it lacks {', '.join(sorted(set(names) - set(contents)))}")
        return {name: contents[name] for name in names}

    def _parse(self, name: str, content: bytes) -> tuple[np.ndarray, list[int]]:
        """data (n,3072) uint8 and n labels of one batch file."""
        try:
            batch = read_batch(content)
            data, labels = batch["data"], list(batch["labels"])
            if data.shape != (len(labels), 3072) or not all(0 <= int(label) <= 9 for label in labels):
                raise ValueError(f"data {data.shape} and {len(labels)} labels do not fit together")
        # a broken pickle may raise anything
        except Exception as error:
            archive = self.root / ARCHIVE
            path = archive if _missing(self.root) else self.root / FOLDER / name
            raise self._damaged(path, f"{name}: {error}") from error
        return data, labels

    def _damaged(self, path: Path, why: str) -> ValueError:
        md5 = ""
        if path.name == ARCHIVE:
            md5 = f", md5 {_md5(path)} where {MD5} belongs"
        return ValueError(
            f"root={self.root} must hold an intact {path.name}, but it is damaged ({why}{md5}); delete {path} and "
            "fetch it again"
        )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _missing(root: Path) -> list[str]:
    return [name for names in BATCHES.values() for name in names if not (root / FOLDER / name).is_file()]


def read_batch(content: bytes) -> dict[str, Any]:
    """The dict in a pickle of plain values and byte arrays; nothing else is loaded, so no code can run.

    Raises:
        pickle.UnpicklingError: the pickle refers to any other class or function.
    """
    batch = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    return {key: value.array if isinstance(value, _Bytes) else value for key, value in batch.items()}


class _PlainUnpickler(pickle.Unpickler):
    """Replaces NumPy's classes by stand-ins, so that NumPy's own unpickling code is not run either."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not plain data and was not loaded") from None


class _ArrayType:
    """Stands for numpy.ndarray, which is only an argument in a pickle."""


class _ByteType:
    """Stands for numpy.dtype; accepts unsigned bytes only."""

    def __init__(self, kind: str, *_: Any) -> None:
        if kind != "u1":
            raise pickle.UnpicklingError(f"arrays must be unsigned bytes, not {kind!r}")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and flags, which do not matter for bytes."""


class _Bytes:
    """Stands for an array, whose state is (version, shape, type, Fortran order, bytes)."""

    array: np.ndarray

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _ByteType) or fortran:
            raise pickle.UnpicklingError("arrays must be unsigned bytes in C order")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 wrote bytes as str
        self.array = np.frombuffer(raw, np.uint8).reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in protocol 2; the codec is fixed, because looking one up imports a module."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not plain data and was not loaded")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Bytes,
    ("numpy._core.multiarray", "_reconstruct"): _Bytes,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _encode,
}
