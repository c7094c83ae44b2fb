"""The start of a process on a folder of 1,000 to 300,000 images of 32 pixels, of which a quarter are JPEG files.

Times are CPU times of the process with all its threads, in microseconds per image of the largest folder: the scan of
new files, that of known ones, decoding into memory, and mapping decoded images with their checksum. An exponent is the
slope of the logarithm of the time between the smallest and the largest folder. Two processes that start together, with
empty caches, are compared with one by the wall time until both have 100,000 images, and so is one that finds them
decoded.
"""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most
from diffusion_lab.data import ImageFolder

COUNTS, TOGETHER, SIDE = (1_000, 10_000, 100_000, 300_000), 100_000, 32
GOALS = {"scan of known files": at_most(10)}  # 3 s for the largest folder


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        seconds = {count: _start(drawn_folder(place / str(count), count), place / f"cache-{count}") for count in COUNTS}
        for what in seconds[COUNTS[0]]:
            first, last = seconds[COUNTS[0]][what], seconds[COUNTS[-1]][what]
            exponent = math.log(last / first) / math.log(COUNTS[-1] / COUNTS[0])
            count = f"{COUNTS[-1]:,} images"
            each = Ratio.of([last / COUNTS[-1] * 1e6])
            yield Line(f"{count}: {what}", each, GOALS.get(what), "us per image")
            yield Line(f"{count}: {what}, exponent", Ratio.of([exponent]), at_most(1.2))
        root, count = place / str(TOGETHER), f"{TOGETHER:,} images"
        one, two = (_together(root, place / f"together-{number}", number) for number in (1, 2))
        yield Line(f"{count}: two starts over one, wall time", Ratio.of([two / one]), at_most(1.5))
        yield Line(
            f"{count}: a start that finds them decoded, wall time", Ratio.of([_again(root, place)]), at_most(3), "s"
        )


def drawn_folder(root: Path, count: int) -> Path:
    """A folder of that many different images, a thousand in each folder below it."""
    base = np.random.default_rng(0).integers(0, 256, (256, 8, 8, 3), np.uint8)
    smooth = [Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for pixels in base]
    for i in range(count):
        if i % 1000 == 0:
            (root / f"{i // 1000:03}").mkdir(parents=True)
        image = smooth[i % 256].copy()
        image.putpixel((i % SIDE, i // SIDE % SIDE), (i % 251, i // 251 % 251, 7))
        image.save(root / f"{i // 1000:03}" / f"{i:06}.{'jpg' if i % 4 == 3 else 'png'}", compress_level=1)
    return root


def _start(root: Path, cache: Path) -> dict[str, float]:
    """CPU seconds of each way to start."""
    return {
        "scan of new files": _seconds(lambda: _source(root, cache).check()),
        "scan of known files": _seconds(lambda: _source(root, cache).check()),
        "scan of known files, decoding into memory": _seconds(lambda: _load(root, cache, 0)),
        "scan of known files, decoding and keeping": _seconds(lambda: _load(root, cache, 16)),
        "scan of known files, mapping": _seconds(lambda: _load(root, cache, 16)),
    }


def _source(root: Path, cache: Path, cache_gb: float = 16) -> ImageFolder:
    return ImageFolder(root, SIDE, cache_dir=cache, cache_gb=cache_gb)


def _load(root: Path, cache: Path, cache_gb: float = 16) -> None:
    source = _source(root, cache, cache_gb)
    source.train()
    source.test()


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _together(root: Path, cache: Path, number: int) -> float:
    """Wall seconds until so many processes, with empty caches, have their images."""
    processes = [multiprocessing.get_context("fork").Process(target=_load, args=(root, cache)) for _ in range(number)]
    start = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return time.perf_counter() - start


def _again(root: Path, place: Path) -> float:
    """Wall seconds of one process with the cache of `_together`."""
    return _together(root, place / "together-1", 1)
