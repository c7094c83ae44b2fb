"""Pages of memory that a training step takes from the kernel, and its time for it: freed memory returned and kept.

A page of 4 KB that is returned and taken again costs the kernel time, which is CPU time of the process: without
`diffusion_lab/cli/compute.py`, as glibc does by default, and with it. Pages are counted by the kernel (page faults
without reading from disk); its share of the CPU time is sampled by a clock of 10 ms, which is 0.1 to 0.6 % of what is
measured here. One thread; unet_tiny has 128 images of 1 x 8 x 8 a step with two levels, 32 of 1 x 28 x 28 with three;
unet_ddpm has 8 of 3 x 32 x 32.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import Callback, LightningModule, Trainer

from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most
from benchmarks.turns import turns
from diffusion_lab.cli.bfloat16 import has_bfloat16
from diffusion_lab.cli.compute import keep_freed_memory

MOST_PAGES = 100  # of a step; they take the kernel about 0.2 ms
BFLOAT16 = "precision=bf16-mixed"
WATCH = "+callbacks.watch={_target_: benchmarks.lines.freed_memory.Pages, keeps: %s, after: %d, path: %s}"


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


class Pages(Callback):
    """Writes, of the steps after the first `after`, the pages of a step and the kernel's percent of the CPU time.

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
            self.start = resource.getrusage(resource.RUSAGE_SELF)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now, start = resource.getrusage(resource.RUSAGE_SELF), self.start
        pages = (now.ru_minflt - start.ru_minflt) / (trainer.global_step - self.after)
        kernel, user = now.ru_stime - start.ru_stime, now.ru_utime - start.ru_utime
        self.path.write_text(f"{pages} {100 * kernel / (kernel + user)}")


def lines() -> Iterator[Line]:
    for case in CASES:
        if BFLOAT16 in case.words and not has_bfloat16():
            continue
        for what, keeps, goal in (("returned", False, None), ("kept", True, at_most(MOST_PAGES))):
            pages, shares = zip(*(_measured(case, keeps) for _ in range(case.times)), strict=True)
            yield Line(f"{case.name}, {what}: pages of a step", Ratio.of(pages), goal)
            yield Line(f"{case.name}, {what}: the kernel's share", Ratio.of(shares), unit="%")


def _measured(case: Case, keeps: bool) -> tuple[float, float]:
    """Pages of a step and percent of the CPU time, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages"
        watch = WATCH % (str(keeps).lower(), case.steps, path)
        turns({case.name: [*case.words, watch]}, case.steps, 1)
        pages, share = path.read_text().split()
        return float(pages), float(share)
