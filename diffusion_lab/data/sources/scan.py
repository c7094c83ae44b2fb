"""Looking at every image of a folder before training, so that no bad file stops a run in its third hour.

Each file is read and decoded once; what was seen (mode, size, sha256, or why it cannot be decoded) is kept in a JSON
file and used again as long as the file's size and time of change stay the same. Large sets are looked at in chunks and
saved on the way, so that memory stays bounded and a scan that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from PIL import Image
from tqdm import tqdm

from diffusion_lab.files import write_whole

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
EXTENSIONS = frozenset(".png .jpg .jpeg .jpe .bmp .gif .webp .tif .tiff .ppm .pgm .pbm .pnm .tga .avif".split())
CHUNK = 2048  # images handed to the threads at a time; millions of waiting futures would take gigabytes
SAVE_EVERY = 100_000  # images looked at between two savings
DEEP_MODES = {"I": "32-bit", "F": "32-bit float"}  # and "I;16", "I;16B", ...: 16-bit


@dataclass(frozen=True, slots=True)
class Seen:
    """What the scan saw in one file.

    Attributes:
        name: path below the scanned folder, with slashes.
        mtime_ns, size: time of change in nanoseconds and length in bytes, which tell whether to look again.
        mode: Pillow's colour mode, "" when the file cannot be decoded.
        width, height: pixels as stored.
        sha256: of the file's bytes.
        error: why it cannot be decoded, "" when it can.
    """

    name: str
    mtime_ns: int
    size: int
    mode: str = ""
    width: int = 0
    height: int = 0
    sha256: str = ""
    error: str = ""

    def fault(self, min_size: int) -> str:
        """Why this file cannot be trained on, "" when it can; shorter side at least `min_size` pixels."""
        if self.error:
            return self.error
        if self.mode.startswith("I;16") or self.mode in DEEP_MODES:
            depth = DEEP_MODES.get(self.mode, "16-bit")
            return f"{depth} pixels (mode {self.mode}) would be cut off at 255; convert to 8 bits"
        if min(self.width, self.height) < min_size:
            return f"{self.width} x {self.height} pixels, the shorter side must have {min_size}"
        return ""


def scan(root: Path, cache_dir: Path, within: Sequence[str] = ()) -> list[Seen]:
    """What is in every image file below `root`, sorted by name. Files with other extensions are passed over.

    Args:
        root: an existing folder; hidden files and folders are passed over.
        cache_dir: where earlier looks are kept; created when missing, and done without when it cannot be written.
        within: look only into these folders of `root`; none: into all.
    """
    cache_file = cache_dir / f"scan-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.json"
    known = _load(cache_file)
    found = []
    for name in _image_files(root, within):
        now = _unseen(root, name)
        old = known.get(name, now)
        found.append(old if (old.mtime_ns, old.size) == (now.mtime_ns, now.size) else now)
    return _look_at_new(found, len(known), lambda i: (root / found[i].name).read_bytes(), cache_file)


def scan_rows(names: Sequence[str], read: Callable[[int], bytes], cache_file: Path) -> list[Seen]:
    """What is in every row of a table of encoded images.

    Args:
        names: what errors call the rows.
        read: row number -> the encoded image.
        cache_file: where earlier looks at just this table are kept; its name must change when the table does.
    """
    known = _load(cache_file)
    found = [known.get(name) or Seen(name, 0, -1) for name in names]
    return _look_at_new(found, len(known), read, cache_file)


def _look_at_new(found: list[Seen], num_known: int, read: Callable[[int], bytes], cache_file: Path) -> list[Seen]:
    """`found` with the entries filled in that nobody has looked at yet; saved when anything changed."""
    new = [i for i, seen in enumerate(found) if not (seen.mode or seen.error)]
    looks = _in_chunks(lambda i: _look(found[i], lambda: read(i)), new, "scan")
    for count, (i, seen) in enumerate(zip(new, looks, strict=True), 1):
        found[i] = seen
        if count % SAVE_EVERY == 0:
            _save(cache_file, found)
    if new or num_known != len(found):
        _save(cache_file, found)
    return found


def count_modes(found: Iterable[Seen]) -> str:
    """ "12 RGB, 3 L", most frequent first."""
    return ", ".join(f"{n} {mode}" for mode, n in Counter(seen.mode for seen in found).most_common())


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], what: str) -> list[Result]:
    """function of each item, in order, with a progress bar on a terminal. Pillow decodes outside Python's lock."""
    return list(_in_chunks(function, items, what))


def _in_chunks(function: Callable[[Item], Result], items: Sequence[Item], what: str) -> Iterator[Result]:
    bar = tqdm(total=len(items), desc=what, unit="image", disable=None, leave=False)
    with bar, ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for start in range(0, len(items), CHUNK):
            for result in pool.map(function, items[start : start + CHUNK]):
                bar.update()
                yield result


def _image_files(root: Path, within: Sequence[str]) -> list[str]:
    """Their names below `root`, sorted folder by folder. Strings, because a million Path objects take a minute."""
    names = []
    for folder, folders, files in os.walk(root, followlinks=True):
        below = os.path.relpath(folder, root)
        if within and below == ".":
            folders[:], files = [name for name in folders if name in within], []
        folders[:] = [name for name in folders if not name.startswith(".")]
        prefix = "" if below == "." else f"{Path(below).as_posix()}/"
        names += [prefix + name for name in files if not name.startswith(".")]
    images = [name for name in names if os.path.splitext(name)[1].lower() in EXTENSIONS]
    return sorted(images, key=lambda name: name.split("/"))


def _unseen(root: Path, name: str) -> Seen:
    try:
        status = os.stat(f"{root}/{name}")
    except OSError:
        return Seen(name, 0, 0, error="missing")  # a link may point nowhere
    return Seen(name, status.st_mtime_ns, status.st_size)


def _look(seen: Seen, read: Callable[[], bytes]) -> Seen:
    if seen.size == 0:
        return replace(seen, error="zero bytes")
    try:
        content = read()
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            size = {"width": image.width, "height": image.height}
            return replace(seen, mode=image.mode, sha256=hashlib.sha256(content).hexdigest(), **size)
    except Image.UnidentifiedImageError:
        return replace(seen, error="not an image")
    except Exception as error:  # Pillow's decoders raise whatever they like on damaged files
        return replace(seen, error=f"cannot be decoded ({' '.join(str(error).split())})")


_row_of = attrgetter(*(field.name for field in fields(Seen)))  # dataclasses.astuple copies deeply, ten times slower


def _load(cache_file: Path) -> dict[str, Seen]:
    try:
        rows = json.loads(cache_file.read_text())["rows"]
        return {row[0]: Seen(*row) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):  # absent, torn, or of another version: look again
        return {}


def _save(cache_file: Path, found: list[Seen]) -> None:
    rows = [_row_of(seen) for seen in found if seen.mode or seen.error]
    try:
        write_whole(cache_file, json.dumps({"rows": rows}).encode())  # no indent: that takes Python's slow encoder
    except OSError as error:
        log.info("the scan is not kept: %s", error)
