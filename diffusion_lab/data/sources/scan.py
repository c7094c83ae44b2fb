"""Scan of all images of a folder before training, so that bad files are reported then and do not stop a run later.

Each file is read and decoded once; the result (mode, size, sha256, or why it cannot be decoded) is cached in a JSON
file and reused while the file's size and time of change stay the same. A file that could not be read, as without the
rights or from a disk that was away, is read again the next time; what this version of Pillow cannot decode, with
another. Large sets are scanned in chunks and saved regularly, so that memory stays bounded and a stopped scan can
continue.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import PIL
from PIL import Image

from diffusion_lab.cache_folder import one_at_a_time
from diffusion_lab.data.sources.walk import find_images
from diffusion_lab.files import write_whole
from diffusion_lab.progress import progress

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 2048  # images handed to the threads at a time; millions of waiting futures would take gigabytes
SAVE_EVERY = 100_000  # images scanned between two saves
TOO_SMALL = "the shorter side must have"
UNREAD = "cannot be read"
DEEP_MODES = {"I": "32-bit", "F": "32-bit float"}  # and "I;16", "I;16B", ...: 16-bit


class Seen(NamedTuple):
    """The result of the scan for one file.

    Attributes:
        name: path below the scanned folder, with slashes.
        mtime_ns, size: time of change in nanoseconds and length in bytes; the file is scanned again if they change.
        mode: Pillow's colour mode, "" if the file cannot be decoded.
        width, height: pixels as stored.
        sha256: hash of the file's bytes.
        error: why it cannot be decoded, "" if it can.
        low, high: smallest and largest value of its pixels, 0..255; -1 if it cannot be decoded.
    """

    name: str
    mtime_ns: int
    size: int
    mode: str = ""
    width: int = 0
    height: int = 0
    sha256: str = ""
    error: str = ""
    low: int = -1
    high: int = -1

    def fault(self, min_size: int) -> str:
        """Why this file cannot be used, "" if it can; the shorter side must have at least `min_size` pixels."""
        if self.error:
            return self.error
        if self.mode.startswith("I;16") or self.mode in DEEP_MODES:
            depth = DEEP_MODES.get(self.mode, "16-bit")
            return f"{depth} pixels (mode {self.mode}) would be cut off at 255; convert to 8 bits"
        if min(self.width, self.height) < min_size:
            return f"{self.width} x {self.height} pixels, {TOO_SMALL} {min_size}"
        return ""


def scan(root: Path, cache_dir: Path, within: Sequence[str] = ()) -> list[Seen]:
    """Scan every image file below `root`, sorted by name (`walk.py`). What is left out is logged in one line.

    Args:
        root: an existing folder.
        cache_dir: folder of earlier results; created if missing, and not used if it cannot be written.
        within: folders of `root` to search; empty: all.
    """
    cache_file = cache_dir / f"scan-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.json"
    found = find_images(root, within)
    if sentence := found.sentence():
        log.info("%s: %s", root, sentence)

    def compared() -> tuple[list[Seen], int]:
        with _without_collections(), _folder(root) as folder:
            known = _load(cache_file)
            return [_known_or_new(known.get(name), name, folder) for name in found.names], len(known)

    return _scanned(compared, lambda i: (root / found.names[i]).read_bytes(), cache_file)


def scan_rows(names: Sequence[str], read: Callable[[int], bytes], cache_file: Path) -> list[Seen]:
    """Scan every row of a table of encoded images.

    Args:
        names: names of the rows in errors.
        read: row number -> the encoded image.
        cache_file: file of earlier results for this table; its name must change when the table does.
    """

    def compared() -> tuple[list[Seen], int]:
        known = _load(cache_file)
        return [known.get(name) or Seen(name, 0, -1) for name in names], len(known)

    return _scanned(compared, read, cache_file)


def _scanned(
    compared: Callable[[], tuple[list[Seen], int]], read: Callable[[int], bytes], cache_file: Path
) -> list[Seen]:
    """The results for all entries, also for those that have none yet. Of several processes one reads the images.

    Args:
        compared: the entries with their earlier results, if they have one, and the number of all earlier results.
        read: number of an entry -> the encoded image.
        cache_file: where the results are saved if anything has changed.
    """
    seen, num_known = compared()
    if num_known == len(seen) and not _new(seen):
        return seen
    with one_at_a_time(cache_file):
        seen, num_known = compared()  # another process may have read them meanwhile
        new = _new(seen)
        results = in_threads(lambda i: _decode(seen[i], lambda: read(i)), new, "scan")
        for count, (i, one) in enumerate(zip(new, results, strict=True), 1):
            seen[i] = one
            if count % SAVE_EVERY == 0:
                _save(cache_file, seen)
        if any(_is_kept(seen[i]) for i in new) or num_known != sum(map(_is_kept, seen)):
            _save(cache_file, seen)
    return seen


def _is_kept(one: Seen) -> bool:
    """Whether its result holds the next time."""
    return bool(one.mode or one.error) and not one.error.startswith(UNREAD)


def _new(seen: Sequence[Seen]) -> list[int]:
    """Numbers of the entries without a result."""
    return [i for i, one in enumerate(seen) if not (one.mode or one.error)]


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], what: str) -> Iterator[Result]:
    """function of each item, in order, with its progress. Pillow releases the GIL while decoding."""
    with progress(what, len(items), "images") as task, ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for start in range(0, len(items), CHUNK):
            for result in pool.map(function, items[start : start + CHUNK]):
                task.advance()
                yield result


def _known_or_new(known: Seen | None, name: str, folder: int) -> Seen:
    """The earlier result if the file in the open folder has not changed since, else an entry without one."""
    try:
        status = os.stat(name, dir_fd=folder)  # the kernel need not look up the folders above for each of the files
    except OSError:
        return Seen(name, 0, 0, error="missing")  # e.g. a broken link
    if known is not None and (known.mtime_ns, known.size) == (status.st_mtime_ns, status.st_size):
        return known
    return Seen(name, status.st_mtime_ns, status.st_size)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """The descriptor of an open folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _without_collections() -> Iterator[None]:
    """No search for garbage, which looks at all objects of the process again and again while a million are made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(seen: Seen, read: Callable[[], bytes]) -> Seen:
    if seen.size == 0:
        return seen._replace(error="zero bytes")
    try:
        content = read()
    except (OSError, MemoryError) as error:
        return seen._replace(error=f"{UNREAD} ({' '.join(str(error).split())})")
    except Exception as error:  # of an archive or a table
        return seen._replace(error=f"cannot be decoded ({' '.join(str(error).split())})")
    try:
        Image.open(io.BytesIO(content)).verify()  # a PNG's checksums, which `load` does not look at for the pixels
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            low, high = _extremes(image)
            found = {"width": image.width, "height": image.height, "low": low, "high": high}
            return seen._replace(mode=image.mode, sha256=hashlib.sha256(content).hexdigest(), **found)
    except Image.UnidentifiedImageError:
        return seen._replace(error="not an image")
    except Exception as error:  # Pillow's decoders raise any class of error on damaged files
        return seen._replace(error=f"cannot be decoded ({' '.join(str(error).split())})")


def _extremes(image: Image.Image) -> tuple[int, int]:
    """Of the pixels; the whole range where the stored numbers are not grey levels, such as indices of a palette."""
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        return 0, 255
    found = np.array(image.getextrema())
    return int(found.min()), int(found.max())


def _load(cache_file: Path) -> dict[str, Seen]:
    try:
        content = json.loads(cache_file.read_text(encoding="utf-8"))
        columns = content["columns"] if "columns" in content else [*zip(*content["rows"], strict=True)]  # of 0.1.0
        if len(columns) != len(Seen._fields):
            return {}
        same = content.get("pillow") == PIL.__version__
        return {name: one for name, one in zip(columns[0], map(Seen, *columns), strict=True) if same or not one.error}
    except (OSError, ValueError, TypeError, LookupError):  # missing, damaged, or of another version: scan again
        return {}


def _save(cache_file: Path, seen: list[Seen]) -> None:
    # A list for each field, not for each of a million files, is read in half the time.
    columns = list(zip(*filter(_is_kept, seen), strict=True))
    try:
        # Without indent, which would use Python's slow encoder.
        write_whole(cache_file, json.dumps({"columns": columns, "pillow": PIL.__version__}).encode())
    except OSError as error:
        log.info("the scan cannot be saved: %s", error)
