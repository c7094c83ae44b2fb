"""Looking at every image of a folder before training, so that no bad file stops a run in its third hour.

Each file is read and decoded once; what was seen (mode, size, sha256, or why it cannot be decoded) is kept in a JSON
file and used again as long as the file's size and time of change stay the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from PIL import Image
from tqdm import tqdm

from diffusion_lab.files import write_json

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
EXTENSIONS = frozenset(".png .jpg .jpeg .jpe .bmp .gif .webp .tif .tiff .ppm .pgm .pbm .pnm .tga .avif".split())
DEEP_MODES = {"I": "32-bit", "F": "32-bit float"}  # and "I;16", "I;16B", ...: 16-bit


@dataclass(frozen=True)
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


def scan(root: Path, cache_dir: Path) -> list[Seen]:
    """What is in every image file below `root`, sorted by name. Files with other extensions are passed over.

    Args:
        root: an existing folder; hidden files and folders are passed over.
        cache_dir: where earlier looks are kept; created when missing, and done without when it cannot be written.
    """
    cache_file = cache_dir / f"scan-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.json"
    known = _load(cache_file)
    found = []
    for path in _image_files(root):
        name = path.relative_to(root).as_posix()
        status = path.stat() if path.exists() else None  # a link may point nowhere
        now = Seen(name, status.st_mtime_ns, status.st_size) if status else Seen(name, 0, 0, error="missing")
        old = known.get(name, now)
        found.append(old if (old.mtime_ns, old.size) == (now.mtime_ns, now.size) else now)
    new = {seen.name for seen in found if not (seen.mode or seen.error)}
    if new:
        looked = iter(in_threads(lambda seen: _look(root, seen), [s for s in found if s.name in new], "scan"))
        found = [next(looked) if seen.name in new else seen for seen in found]
    if new or len(known) != len(found):
        _save(cache_file, found)
    return found


def count_modes(found: Iterable[Seen]) -> str:
    """ "12 RGB, 3 L", most frequent first."""
    return ", ".join(f"{n} {mode}" for mode, n in Counter(seen.mode for seen in found).most_common())


def in_threads(function: Callable[[Item], Result], items: list[Item], what: str) -> list[Result]:
    """function of each item, in order, with a progress bar on a terminal. Pillow decodes outside Python's lock."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        results = pool.map(function, items)
        return list(tqdm(results, total=len(items), desc=what, unit="image", disable=None, leave=False))


def _image_files(root: Path) -> list[Path]:
    paths = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted(path for path in paths if path.suffix.lower() in EXTENSIONS)


def _look(root: Path, seen: Seen) -> Seen:
    if seen.size == 0:
        return replace(seen, error="zero bytes")
    try:
        content = (root / seen.name).read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            size = {"width": image.width, "height": image.height}
            return replace(seen, mode=image.mode, sha256=hashlib.sha256(content).hexdigest(), **size)
    except Image.UnidentifiedImageError:
        return replace(seen, error="not an image")
    except Exception as error:  # Pillow's decoders raise whatever they like on damaged files
        return replace(seen, error=f"cannot be decoded ({' '.join(str(error).split())})")


def _load(cache_file: Path) -> dict[str, Seen]:
    try:
        return {entry["name"]: Seen(**entry) for entry in json.loads(cache_file.read_text())}
    except (OSError, ValueError, TypeError, KeyError):  # absent, torn, or of another version: look again
        return {}


def _save(cache_file: Path, found: list[Seen]) -> None:
    try:
        write_json(cache_file, [asdict(seen) for seen in found])
    except OSError as error:
        log.info("the scan is not kept: %s", error)
