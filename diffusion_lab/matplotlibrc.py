"""Matplotlib's settings come from the user, not from the working folder, which may have been unpacked from anywhere."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NAME = "matplotlibrc"


def ignore_working_folder() -> None:
    """Import Matplotlib without the working folder's `matplotlibrc`, which it would read before any other, whatever it
    is: a FIFO, for which it would wait, or settings that name a module to import.

    To be called early, because Lightning imports Matplotlib as well. Without such a file, it does nothing.
    """
    if not os.path.lexists(NAME) or "matplotlib" in sys.modules:
        return
    here = os.open(os.curdir, os.O_RDONLY)
    os.chdir(os.sep)
    try:
        with suppress(ImportError):
            import matplotlib  # noqa: F401
    finally:
        os.fchdir(here)
        os.close(here)
