"""Heavy imports without the garbage collector."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off: importing torch and Lightning makes half a million objects, none of them garbage,
    and traversing them repeatedly takes a seventh of the import time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def import_torch() -> None:
    """Import torch inside `importing`, for a short command: Python would traverse its objects at exit, in 0.4 s.

    Once per process, since what is garbage at this moment stays in memory.
    """
    importlib.import_module("torch")

    if not gc.get_freeze_count():
        gc.freeze()
