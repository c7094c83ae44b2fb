"""Folders that several cases of a part need, made once by the first of them."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.case import Outcome, slug
from tests.faults.kept import fingerprint
from tests.faults.runs import train

SHARED = "shared"


def shared(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make(folder)` has filled, beside the case's own `folder`, with the current code."""
    place = folder.parent / SHARED / fingerprint() / slug(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{place}.made").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            Path(f"{place}.made").touch()
    return place


def straight(folder: Path, name: str, words: list[str]) -> Path:
    """The folder of an undisturbed run, one for all cases of this name.

    Raises:
        RuntimeError: that run failed.
    """

    def make(place: Path) -> None:
        outcome = Outcome()
        if not train(place, words).done(outcome) or outcome.wrong:
            raise RuntimeError(f"the undisturbed run failed: {'; '.join(outcome.wrong)}")

    return shared(folder, f"straight-{name}", make)
