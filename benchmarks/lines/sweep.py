"""Sweeps: eight short jobs by our launcher, and by eight commands.

Wall time (there are several processes) of `diffusion-lab train -m sampler=uniform,loss_second_moment seed=0,1,2,3`, the
digits with the default network, validation and checkpoints, without samples, in 32 steps, which train for about two
seconds: by the launcher one job at a time and two at a time, one thread each, compared with one command per job, one
after the other. In each of two rounds two of the eight commands run (uniform in one, loss_second_moment in the other;
their times are equal within 3 %) and are counted four times, one before the sweeps and one after them.

The overhead of a job is the CPU time that each of eight further jobs of one step adds to a sweep, in all its processes,
minus the time of the job in Lightning's fit (the step, validation, checkpoint): composing and checking its
configuration, its process, building its parts, its records. Other work on the machine slows down the commands and one
job at a time equally, but two jobs at a time get two shares of the processor.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from benchmarks.commands import Spent, spend
from benchmarks.paired import Ratio, ratio
from benchmarks.table import Line, at_least, at_most

SAMPLERS, SEEDS, ROUNDS = ("uniform", "loss_second_moment"), (0, 1), 2
HERE = str(Path(__file__).resolve().parents[2])  # the class of the clock must be in the working folder
JOB = ("base=ddpm", "max_steps=32", "~callbacks.generation")
CELLS = ("sampler=uniform,loss_second_moment", "seed=0,1,2,3")
CLOCK = "+callbacks.clock={_target_: benchmarks.lines.sweep.FitClock, folder: %s}"


def lines() -> Iterator[Line]:
    seconds: dict[str, list[float]] = {"apart": [], "one": [], "two": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            before = _alone(folder, SAMPLERS[number], SEEDS[0])
            seconds["one"].append(train(folder, "-m", *CELLS, *JOB).wall)
            seconds["two"].append(train(folder, "-m", *CELLS, *JOB, "hydra.launcher.n_jobs=2").wall)
            after = _alone(folder, SAMPLERS[number], SEEDS[1])
            seconds["apart"].append(4 * (before + after))
        yield Line(
            "eight commands over a sweep, one job at a time", ratio(seconds["apart"], seconds["one"]), at_least(2.5)
        )
        yield Line("eight commands over a sweep, two at a time", ratio(seconds["apart"], seconds["two"]), at_least(3.5))
        yield Line("a sweep of eight jobs, one at a time", Ratio.of(seconds["one"]), unit="s")
        yield Line("overhead of a job over its work", _overhead(folder), at_most(0.5), "s of CPU")


def train(folder: str, *words: str) -> Spent:
    """The cost of `diffusion-lab train WORDS` in an empty folder of runs."""
    runs = Path(folder, "runs")
    shutil.rmtree(runs, ignore_errors=True)
    return spend(["train", *words, f"paths.root={runs}"], HERE)


def _alone(folder: str, sampler: str, seed: int) -> float:
    return train(folder, f"sampler={sampler}", f"seed={seed}", *JOB).wall


def _overhead(folder: str) -> Ratio:
    one, nine = (beyond_work(folder, jobs) for jobs in (1, 9))
    return Ratio.of([(nine - one) / 8])


def beyond_work(folder: str, jobs: int, *words: str) -> float:
    """CPU seconds of a sweep over seeds, whose jobs train for one step, less those of its jobs in Lightning's fit."""
    for old in Path(folder).glob("*.fit"):
        old.unlink()
    values = ",".join(map(str, range(jobs)))
    spent = train(folder, "-m", f"seed={values}", *JOB, "max_steps=1", CLOCK % folder, *words)
    works = [float(path.read_text()) for path in Path(folder).glob("*.fit")]
    if len(works) != jobs:
        raise RuntimeError(f"{len(works)} of {jobs} jobs have recorded their work")
    return spent.cpu - sum(works)


class FitClock(Callback):
    """Writes the CPU seconds of this process between `setup` and `teardown` to a new file.

    Args:
        folder: of the file, whose name ends in `.fit`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._start = time.process_time()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        seconds = time.process_time() - self._start
        (self.folder / f"{time.time_ns()}.fit").write_text(str(seconds))
