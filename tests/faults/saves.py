"""SIGKILL during a save: at a given line of the code that writes a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from diffusion_lab import files
from diffusion_lab.callbacks import checkpoint
from diffusion_lab.training import checkpoint_io, sharded

OF_A_SAVE = {str(module.__file__) for module in (checkpoint, checkpoint_io, files, sharded)}


def killed_in_save(save: int, line: int) -> Callable[[], None]:
    """A patch that kills this process and its group in its `save`-th save (1, 2, ...), before its `line`-th line.

    Executed lines are counted in all files of this package; a save with fewer lines is killed at its end.
    """

    def patch() -> None:
        original = checkpoint.Checkpoint._write
        saves = 0

        def write(self: checkpoint.Checkpoint, *args: Any) -> None:
            nonlocal saves
            saves += 1
            if saves < save:
                return original(self, *args)
            _die_at(line)
            original(self, *args)
            _die()

        checkpoint.Checkpoint._write = write

    return patch


def _die_at(line: int) -> None:
    """Count executed lines of this package from here on."""
    executed = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal executed
        if frame.f_code.co_filename not in OF_A_SAVE:
            return None
        if event == "line":
            executed += 1
            if executed >= line:
                _die()
        return trace

    sys.settrace(trace)


def _die() -> None:
    """Kill all processes of the run."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
