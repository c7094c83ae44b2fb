"""Heavy imports: without the garbage collector, and said while they last."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from diffusion_lab.progress import waiting

HEAVY = {"torch": "PyTorch", "lightning.pytorch": "Lightning"}  # module -> its name


@contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off: importing torch and Lightning makes half a million objects, none of them garbage,
    and traversing them repeatedly takes a seventh of the import time. They are then left out for good: the next two
    collections would traverse them, which takes half a second."""
    was_on = gc.isenabled()
    gc.disable()
    new = " and ".join(name for module, name in HEAVY.items() if module not in sys.modules)
    try:
        with waiting(f"importing {new}") if new else nullcontext():
            yield
    finally:
        if new:
            gc.freeze()
            atexit.register(gc.unfreeze)  # at the end of the process all is freed, else nanobind reports leaks
        if was_on:
            gc.enable()
