"""A callback that says what a job's work itself cost, from the start of the fit to its end."""

from __future__ import annotations

import time
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer


class FitClock(Callback):
    """Writes the CPU seconds of this process between `setup` and `teardown` into a file of its own.

    Args:
        folder: where; the file's name ends in `.fit`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._start = time.process_time()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        seconds = time.process_time() - self._start
        (self.folder / f"{time.time_ns()}.fit").write_text(str(seconds))
