"""Decoded images that are kept: killed in writing, damaged, or without room.

A run of 24 steps on a folder of images starts where the pixels that another run has kept are damaged, where a process
was killed at a random image while it wrote them, or where a small disk has no room for them. It must train all the
same, say so in one line, and end bitwise equal to a run that keeps none.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

from diffusion_lab.cache_folder import VARIABLE
from diffusion_lab.data.pixels import Square
from tests.faults.case import Case, Outcome
from tests.faults.parts.damage import damage
from tests.faults.parts.full_disk import mounted
from tests.faults.runs import Command, compare, ended, train, wait_for_group
from tests.faults.shared import shared

FLIPS, CUTS, VERSIONS, KILLS, FULL = "bit flips", "truncations", "other versions", "kills", "full disks"
NUMBERS = {FLIPS: 10, CUTS: 5, VERSIONS: 1, KILLS: 10, FULL: 3}
IMAGES, SIDE = 64, 16
NOT_KEPT = "decoded images are not kept for the next start: "


def cases(quick: bool) -> list[Case]:
    """29 cases, or one of each kind."""
    selected = []
    for kind, number in NUMBERS.items():
        for index in range(1 if quick else number):
            name = f"{kind} {index:02d}"
            selected.append(Case(name, partial(started, kind=kind, chance=random.Random(name))))
    return selected


def draw(place: Path) -> None:
    """Write the images."""
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)):
        Image.fromarray(pixels).save(place / f"{i:02}.png")


def start(
    folder: Path, root: Path, cache: Path, cache_gb: int = 1, patch: Callable[[], object] = lambda: None
) -> Command:
    """A run on the images in `root` with its own folder of caches."""
    source = {"root": root, "image_size": SIDE, "cache_gb": cache_gb}
    words = ["dataset=image_folder", *(f"dataset.source.{key}={value}" for key, value in source.items())]

    def before() -> None:
        os.environ[VARIABLE] = str(cache)
        patch()

    return train(folder, [*words, "dataset.val_images=4"], before)


def straight(place: Path, root: Path, cache_gb: int) -> None:
    """An undisturbed run, with its caches."""
    outcome = Outcome()
    if not start(place, root, place / "cache", cache_gb).done(outcome) or outcome.wrong:
        raise RuntimeError(f"the undisturbed run failed: {'; '.join(outcome.wrong)}")


def killed_at(number: int) -> Callable[[], None]:
    """A patch that kills the process when it decodes its image of this number."""

    def patch() -> None:
        original, numbers = Square.__call__, count(1)

        def call(self: Square, content: bytes) -> np.ndarray:
            if next(numbers) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, content)

        Square.__call__ = call

    return patch


def started(folder: Path, kind: str, chance: random.Random) -> Outcome:
    """Disturb the cache, train, and compare."""
    outcome, cache = Outcome(), folder / "cache"
    root = shared(folder, "images", draw)
    reference = shared(folder, "without", partial(straight, root=root, cache_gb=0))
    said = ": the images are decoded again"
    if kind == KILLS:
        said = ""
        command = start(folder, root, cache, patch=killed_at(chance.randint(1, IMAGES)))
        outcome.expect(command.end(outcome) == -signal.SIGKILL, f"not killed: {command.log}")
        wait_for_group(command)
        shutil.rmtree(folder / "runs", ignore_errors=True)
    elif kind == FULL:
        said = NOT_KEPT
        cache.mkdir()
        if not mounted(cache, 8192):
            cache.rmdir()
            cache.touch()  # no disk can be mounted: there is no folder
    else:
        shutil.copytree(shared(folder, "kept", partial(straight, root=root, cache_gb=1)) / "cache", cache)
        path = max((cache / "decoded").glob("*.u8"), key=lambda path: path.stat().st_size)
        if kind == VERSIONS:
            path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 0'))
        else:
            damage(path, kind, chance)
    outcome.counts[kind] = 1
    command = start(folder, root, cache)
    if not command.done(outcome):
        return outcome
    outcome.expect(said in command.output, f"not said: {command.log}")
    if kind != FULL:
        left = [path.suffix for path in (cache / "decoded").iterdir() if path.suffix != ".held"]
        outcome.expect(sorted(left) == [".u8", ".u8"], f"{left} are left in {cache}")
    compare(outcome, ended(reference), ended(folder), kind)
    if not outcome.wrong:
        outcome.counts["equal ends"] = 1
    return outcome
