"""The kernel's share of a training step, with freed memory returned to the operating system and kept.

A page that is returned and taken again costs the kernel time, which is CPU time of the process: without
`diffusion_lab/cli/freed_memory.py`, as glibc does by default, and with it. The share does not depend on the machine's
speed of the hour. One thread; unet_tiny has 128 images of 1 x 8 x 8 a step with two levels, 32 of 1 x 28 x 28 with
three; unet_ddpm has 8 of 3 x 32 x 32.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import Callback, LightningModule, Trainer

from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most
from benchmarks.turns import turns
from diffusion_lab.cli.bfloat16 import has_bfloat16
from diffusion_lab.cli.freed_memory import keep_freed_memory

BFLOAT16 = "precision=bf16-mixed"
WATCH = "+callbacks.watch={_target_: benchmarks.lines.freed_memory.KernelShare, keeps: %s, after: %d, path: %s}"


class Case(NamedTuple):
    """A training, the number of its steps that are measured, after as many that are not, and of its repetitions.

    In the first steps a process that keeps its memory still takes some.
    """

    name: str
    words: Sequence[str]
    steps: int
    times: int = 3


def _gaussian(size: int, channels: int, batch: int) -> list[str]:
    source = {"channels": channels, "image_size": size, "num_images": 256}
    words = [f"dataset.source.{key}={value}" for key, value in source.items()]
    return ["dataset=gaussian", *words, f"batch_size={batch}"]


TINY_28 = ["network=unet_tiny", "network.channel_multipliers=[1,2,2]", *_gaussian(28, 1, 32)]
CASES = (
    Case("unet_tiny, 8 x 8", ["dataset=digits", "network=unet_tiny", "batch_size=128"], 60),
    Case("unet_tiny, 28 x 28", TINY_28, 16),
    Case("unet_tiny, 28 x 28, bf16", [*TINY_28, BFLOAT16], 16),
    Case("unet_ddpm, bf16", ["network=unet_ddpm", *_gaussian(32, 3, 8), BFLOAT16], 8, times=1),
)


class KernelShare(Callback):
    """Writes the kernel's share of the CPU time of the steps after the first `after`, in percent.

    Args:
        keeps: whether the process keeps freed memory.
        after: steps that are not measured.
        path: of the new file.
    """

    def __init__(self, keeps: bool, after: int, path: str) -> None:
        self.keeps, self.after, self.path = keeps, after, Path(path)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.keeps:
            keep_freed_memory()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.after:
            self.start = os.times()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now = os.times()
        kernel, user = now.system - self.start.system, now.user - self.start.user
        self.path.write_text(str(100 * kernel / (kernel + user)))


def lines() -> Iterator[Line]:
    for case in CASES:
        if BFLOAT16 in case.words and not has_bfloat16():
            continue
        yield Line(f"{case.name}: returned", Ratio.of([_share(case, False) for _ in range(case.times)]), unit="%")
        yield Line(f"{case.name}: kept", Ratio.of([_share(case, True) for _ in range(case.times)]), at_most(0.5), "%")


def _share(case: Case, keeps: bool) -> float:
    """Percent of the CPU time, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "share"
        watch = WATCH % (str(keeps).lower(), case.steps, path)
        turns({case.name: [*case.words, watch]}, case.steps, 1)
        return float(path.read_text())
