"""Images that stay encoded, in files or in a table, and are decoded for a batch; the base class of their sources."""

from __future__ import annotations

import hashlib
import logging
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import WrittenPath, check_integer, check_number
from diffusion_lab.cache_folder import cache_folder
from diffusion_lab.data.pixels import Extremes, Square
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource
from diffusion_lab.data.sources.decoded import Decoded
from diffusion_lab.data.sources.scan import TOO_SMALL, Seen, in_threads
from diffusion_lab.files import write_whole

log = logging.getLogger(__name__)
MOST_NAMED = 3  # bad images in an error; all of them are in a file


class EncodedImages(ImageSet):
    """Images that are decoded by `take`.

    Args:
        read: key of an image -> the encoded image.
        keys: of the images: their files' names, or rows of a table.
        seen: the result of the scan for each image.
        square: how they are converted to one shape.
        labels: (N,) int64, or None.
    """

    decodes = True

    def __init__(
        self,
        read: Callable[[Any], bytes],
        keys: Sequence[Any],
        seen: Sequence[Seen],
        square: Square,
        labels: Tensor | None,
    ) -> None:
        self.read, self.keys, self.seen, self.square, self.labels = read, keys, seen, square, labels

    def __len__(self) -> int:
        return len(self.seen)

    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        return torch.from_numpy(np.stack([self._decode(int(i)) for i in ids]))

    def fingerprint(self) -> str:
        """Hash of the encoded images and the conversion, known from the scan without decoding."""
        text = "".join([*(seen.sha256 for seen in self.seen), self.square.identity()])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def extremes(self) -> Extremes:
        """Those of the stored pixels, known from the scan."""
        return Extremes(min(seen.low for seen in self.seen), max(seen.high for seen in self.seen))

    def all_equal(self) -> bool:
        return super().all_equal() or (len(self) > 1 and len({seen.sha256 for seen in self.seen}) == 1)

    def held(self, total: int, memory_mb: float, cache_gb: float, cache_dir: Path) -> ImageSet:
        """The decoded images, kept in the folder of caches or else in memory, if `total` images of this shape take at
        most memory_mb, else itself."""
        megabytes = total * self.square.megabytes
        if megabytes > memory_mb:
            log.info("%.0f MB of images exceed memory_mb=%g: decoding for every batch", megabytes, memory_mb)
            return self
        shape, ids = (len(self), *self.square.shape), range(len(self))
        kept = Decoded(cache_dir, cache_gb, self.fingerprint(), shape) if cache_gb > 0 else None
        images = kept and kept.images(lambda: in_threads(self._decode_scanned, ids, "decode"))
        return _Held(self, np.stack([*in_threads(self._decode, ids, "decode")]) if images is None else images)

    def _decode(self, i: int) -> np.ndarray:
        return self.square(self.read(self.keys[i]))

    def _decode_scanned(self, i: int) -> np.ndarray:
        """As `_decode`; an OSError if it is not the image that was scanned, whose pixels are asked for later by its
        hash."""
        content = self.read(self.keys[i])
        if hashlib.sha256(content).hexdigest() != self.seen[i].sha256:
            raise OSError(f"{self.seen[i].name} has changed since the scan")
        return self.square(content)


class _Held(ArrayImages):
    """Has the fingerprint and extremes of the encoded images, which do not depend on whether they fit into memory."""

    def __init__(self, encoded: EncodedImages, images: np.ndarray) -> None:
        super().__init__(torch.from_numpy(images), encoded.labels)
        self._fingerprint = encoded.fingerprint()
        self._extremes = encoded.extremes()

    def extremes(self) -> Extremes:
        return self._extremes


def random_split(total: int, test_share: float) -> dict[str, list[int]]:
    """Numbers of the "train" and "test" images: the first ceil(test_share N) entries of RandomState(0).permutation(N)
    are test images, and at least one training image remains for N >= 2. Does not depend on the run's seed."""
    order = np.random.RandomState(0).permutation(total)
    test = min(math.ceil(test_share * total), total - 1)
    return {"train": sorted(order[test:].tolist()), "test": sorted(order[:test].tolist())}


class EncodedSource(ImageSource):
    """A source whose images stay encoded: all are scanned before training, and kept in memory if they fit.

    A subclass defines `check`, which fills `_good` and `_ids`, and `listed`.

    Args:
        square: how the images are converted to one shape.
        test_share: share of the images that is held out as the test split, in (0, 1).
        min_size: minimum length of an image's shorter side in pixels, >= 1; None: image_size, so nothing is enlarged.
        on_bad: "error" stops when an image is bad, "skip" leaves bad images out and logs how many.
        memory_mb: the images are decoded once and kept if they take at most this many megabytes (2^20 bytes);
            otherwise they are decoded again for every batch.
        cache_dir: folder of the checks' results and of decoded images; None: $DIFFUSION_LAB_CACHE, else diffusion-lab
            in the user's folder of caches.
        cache_gb: decoded images are kept in `decoded/` of cache_dir, as files that all processes map into their memory,
            as long as all files there take at most this many gigabytes (2^30 bytes), >= 0; those used least recently
            are removed first. 0: each process decodes them into its own memory.

    Raises:
        ValueError: an argument outside its range.
    """

    def __init__(
        self,
        square: Square,
        test_share: float,
        min_size: int | None,
        on_bad: str,
        memory_mb: float,
        cache_dir: WrittenPath | None,
        cache_gb: float,
    ) -> None:
        super().__init__()
        check_number("test_share", test_share, "()", 0, 1, "use 0.1 to hold out every tenth image")
        if min_size is not None:
            check_integer("min_size", min_size, 1, "use null to forbid enlarging")
        if on_bad not in ("error", "skip"):
            raise ValueError(f"on_bad={on_bad} must be error or skip; use error to stop at bad files")
        self.square, self.image_size, self.channels = square, square.image_size, square.channels
        self.min_size = square.image_size if min_size is None else min_size
        self.test_share, self.on_bad, self.memory_mb = test_share, on_bad, memory_mb
        self.cache_gb = check_number("cache_gb", cache_gb, "[)", 0, math.inf, "use 16, or 0 to keep none")
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else cache_folder()
        self._good: list[Seen] = []  # the usable images, once they are checked
        self._ids: dict[str, list[int]] = {}  # "train" and "test": numbers of their images

    def train_size(self) -> int:
        self.check()
        return len(self._ids["train"])

    def load(self, split: str) -> ImageSet:
        return self.listed(split).held(self._total(), self.memory_mb, self.cache_gb, self.cache_dir)

    @abstractmethod
    def listed(self, split: str) -> EncodedImages: ...

    def _total(self) -> int:
        """Number of images that are kept in memory or not together."""
        return len(self._good)

    def _fault(self, image: Seen) -> str:
        """Why an image cannot be used; "" if it can."""
        return image.fault(self.min_size)

    def _usable(self, where: str, seen: Sequence[Seen]) -> list[int]:
        """Numbers of the usable images of a scan; `where` is the "key=value" of the set.

        Raises:
            ValueError: one is bad, with on_bad=error.
        """
        faults = {one.name: fault for one in seen if (fault := self._fault(one))}
        if faults and self.on_bad == "error":
            raise bad_images(where, faults, seen, self.cache_dir)
        return [i for i, one in enumerate(seen) if one.name not in faults]

    def _log_modes(self, where: str | Path, good: Sequence[Seen], total: int) -> None:
        """Log the number of usable images by colour mode, and how many of the `total` are bad."""
        left_out = f", {total - len(good)} bad ones left out" if len(good) < total else ""
        modes = Counter(one.mode for one in good).most_common()
        log.info("%s: %d images (%s)%s", where, len(good), ", ".join(f"{n} {mode}" for mode, n in modes), left_out)


def bad_images(where: str, faults: dict[str, str], seen: Sequence[Seen], cache_dir: Path) -> ValueError:
    """One error about all bad images.

    Args:
        where: "key=value" of the set.
        faults: name -> what is wrong with it.
        seen: the scan of all images.
        cache_dir: folder for the list of the bad ones, if they are too many for a sentence.
    """
    lines = [f"{name}: {fault}" for name, fault in faults.items()]
    more = f"; and {len(lines) - MOST_NAMED} more{_listed(lines, cache_dir)}" if len(lines) > MOST_NAMED else ""
    small = [min(one.width, one.height) for one in seen if one.name in faults and TOO_SMALL in faults[one.name]]
    cure = "Repair or remove them, or set on_bad=skip"
    if len(small) == len(faults):
        cure = f"Use image_size={min(small)}, or min_size={min(small)} to enlarge them, or set on_bad=skip"
    return ValueError(
        f"{where} must hold only usable images; {len(faults)} of {len(seen)} files are bad: "
        f"{'; '.join(lines[:MOST_NAMED])}{more}. {cure}"
    )


def _listed(lines: Sequence[str], cache_dir: Path) -> str:
    """Where all of them are listed; "" if the file cannot be written."""
    path = cache_dir / "bad-images.txt"
    try:
        write_whole(path, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
    except OSError:
        return ""
    return f", listed in {path}"
