"""The folder of latents that `diffusion-lab encode` writes and training reads.

    train.npy, test.npy                  (N,c,h,w) float16, memory-mapped
    train_labels.npy, test_labels.npy    (N,) int64, if the images have classes
    latents.json                         the header, written last: without it the folder is incomplete

With flips, train.npy holds 2N latents: those of the images, then those of the mirrored images in the same order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.files import write_json
from diffusion_lab.progress import progress
from diffusion_lab.runs.shell_commands import command, setting

HEADER = "latents.json"
PROGRESS = "encoding.json"  # of an encoding that is not finished
FORMAT = 1
SPLITS = ("train", "test")
CHUNK = 2**24  # bytes read at a time, which limits the memory
AGAIN = "encode again"


@dataclass(frozen=True)
class Header:
    """The content of latents.json.

    Attributes:
        format: version of this layout.
        autoencoder: `Autoencoder.identity()`, and its location "place".
        images: the encoded images: "name", "channels", "image_size", "num_classes", the names "classes", and per split
            "train" and "test" the number "images" and the "fingerprint".
        posterior: "sample" (one draw per latent) or "mean".
        seed: seed of these draws.
        flips: whether train.npy also holds the mirrored images.
        mean: (c,), mean of the training latents per channel.
        std: (c,), their standard deviation per channel.
        splits: per split "shape" [N,c,h,w], "sha256" of the npy file, and "labels_sha256" or null.
        versions: versions of the packages that wrote it.
    """

    format: int
    autoencoder: dict[str, Any]
    images: dict[str, Any]
    posterior: str
    seed: int
    flips: bool
    mean: list[float]
    std: list[float]
    splits: dict[str, dict[str, Any]]
    versions: dict[str, str]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c,h,w) of one latent."""
        return tuple(self.splits["train"]["shape"][1:])

    def write(self, folder: Path) -> None:
        """Write the header to the folder, which completes it."""
        write_json(folder / HEADER, asdict(self))


def read_header(folder: Path) -> Header:
    """The header of a folder. Errors start with `root=`.

    Raises:
        FileNotFoundError: no header, so the latents are missing or unfinished.
        ValueError: the header is damaged or has another layout.
    """
    path = folder / HEADER
    if not path.is_file():
        unfinished = " (an unfinished encoding is there; run its command again)" if (folder / PROGRESS).exists() else ""
        made = command("encode", "dataset=NAME", setting("outdir", folder))
        raise FileNotFoundError(
            f"root={folder} must be a folder of latents with a {HEADER}{unfinished}; make one with: {made}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"root={folder} must hold latents of format {FORMAT}, not {content['format']}; {AGAIN}")
        header = Header(**{field.name: content[field.name] for field in fields(Header)})
        channels = header.shape[0]
        good = len(header.shape) == 3 and len(header.mean) == len(header.std) == channels
        good = good and bool(np.isfinite(header.mean).all()) and all(0 < std < np.inf for std in header.std)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"root={folder} must have an undamaged {HEADER} ({error!r}); {AGAIN}") from error
    if not good:
        raise ValueError(f"root={folder} must have a finite mean and a std > 0 for each channel; {AGAIN}")
    return header


def open_split(folder: Path, header: Header, split: str) -> np.ndarray:
    """The memory-mapped (N,c,h,w) float16 array of a split; only its type and size are checked."""
    return _open(folder, f"{split}.npy", np.float16, tuple(header.splits[split]["shape"]))


def open_labels(folder: Path, header: Header, split: str) -> np.ndarray | None:
    """The (N,) int64 labels of a split, or None."""
    if header.splits[split]["labels_sha256"] is None:
        return None
    return np.array(_open(folder, f"{split}_labels.npy", np.int64, (header.splits[split]["shape"][0],)))


def verify(folder: Path, header: Header, split: str) -> None:
    """Read a split once and compare it with its hash.

    Raises:
        ValueError: the files differ from what `encode` wrote; the message names a latent that is not finite.
    """
    record = header.splits[split]
    for name, key in ((f"{split}.npy", "sha256"), (f"{split}_labels.npy", "labels_sha256")):
        if record[key] is None or sha256(folder / name, f"verify {name}") == record[key]:
            continue
        if key == "sha256" and (bad := first_not_finite(open_split(folder, header, split))) is not None:
            raise ValueError(f"root={folder} must hold finite latents, and row {bad} of {name} is not; {AGAIN}")
        raise ValueError(f"root={folder} must hold {name} as `diffusion-lab encode` wrote it, and it differs; {AGAIN}")


def sha256(path: Path, what: str = "") -> str:
    """SHA-256 of a file, with its progress if it is large."""
    digest, total = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file, progress(what, total >> 20, "MiB", show=total >= 2**30) as task:
        while block := file.read(CHUNK):
            digest.update(block)
            task.at(file.tell() >> 20)
    return digest.hexdigest()


def moments(array: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of (N,c,h,w), summed in float64."""
    count = array.shape[0] * array.shape[2] * array.shape[3]
    mean = sum(rows.sum((0, 2, 3)) for _, rows in _rows(array)) / count
    square = sum(np.square(rows - mean[:, None, None]).sum((0, 2, 3)) for _, rows in _rows(array)) / count
    return mean.tolist(), np.sqrt(square).tolist()


def first_not_finite(array: np.ndarray) -> int | None:
    """Number of the first latent with NaN or infinity; None if there is none."""
    for start, rows in _rows(array):
        bad = ~np.isfinite(rows).all((1, 2, 3))
        if bad.any():
            return start + int(bad.argmax())
    return None


def _rows(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, float64 rows) of consecutive parts."""
    step = max(1, CHUNK // max(1, array[0].nbytes))
    for start in range(0, len(array), step):
        yield start, array[start : start + step].astype(np.float64)


def _open(folder: Path, name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    path = folder / name
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"root={folder} must hold all of {name} ({reason}); {AGAIN}") from error
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"root={folder} must hold {name} as its header says, {np.dtype(dtype)} {shape}, and it is {array.dtype} "
            f"{array.shape}; {AGAIN}"
        )
    return array
