"""A study of 24 short runs from its command to its report.

CPU time of all processes of `diffusion-lab train experiment=demo` with six distributions of t, four seeds and 420 steps
of 128 images (digits, validation every 105, at the end 1,000 samples with 20 network calls each and their metrics), two
jobs at a time, and of `diffusion-lab report` on it. A job's own clock tells its parts apart; the launcher is the sweep
without its jobs.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from benchmarks.commands import spend
from diffusion_lab.callbacks import Checkpoint, Generation, Validation

HERE = str(Path(__file__).resolve().parents[2])  # the class of the clock must be in the working folder
SAMPLERS = "uniform,logit_normal,beta,speed,stratified,loss_second_moment"
SETTINGS = ["max_steps=420", "batch_size=128", "metrics.names=[fid,precision,recall]"]
CLOCK = "+callbacks.clock={_target_: benchmarks.profiles.study.PartsClock, folder: %s}"
BEFORE, FIT, TRAINING = "jobs, before their fit", "fit", "training"
WATCHED: dict[type[Callback], str] = {
    Validation: "validation",
    Generation: "samples and metrics",
    Checkpoint: "checkpoints",
}


def rows() -> Iterator[tuple[str, ...]]:
    yield "part", "CPU s", "share"
    spent = measured()
    whole = sum(spent.values())
    for part, seconds in [*spent.items(), ("all", whole), ("all but training", whole - spent[TRAINING])]:
        yield part, f"{seconds:.1f}", f"{100 * seconds / whole:.1f} %"


def measured(*words: str) -> dict[str, float]:
    """Part -> CPU seconds of the study, with further words for its training."""
    with tempfile.TemporaryDirectory() as folder:
        own = ["experiment=demo", *SETTINGS, f"sampler={SAMPLERS}", "seed=0,1,2,3", f"paths.root={folder}"]
        sweep = spend(["train", *own, CLOCK % folder, *words], HERE)
        jobs: Counter[str] = Counter()
        for path in Path(folder).glob("*.parts"):
            jobs.update(json.loads(path.read_text()))
        report = spend(["report", f"{folder}/demo"], HERE)
    inside = sum(jobs[name] for name in WATCHED.values())
    launcher = sweep.cpu - jobs[BEFORE] - jobs[FIT]
    return {
        "the launcher: start, compositions, checks": launcher,
        BEFORE: jobs[BEFORE],
        TRAINING: jobs[FIT] - inside,
        **{name: jobs[name] for name in WATCHED.values()},
        "report": report.cpu,
    }


class PartsClock(Callback):
    """Writes the CPU seconds of a job's parts to a new file.

    Args:
        folder: of the file, whose name ends in `.parts`.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.spent = Path(folder), Counter[str]()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.start = time.process_time()
        for callback in vars(trainer)["callbacks"]:
            for kind, name in WATCHED.items():
                if isinstance(callback, kind):
                    self._watch(callback, name)

    def _watch(self, callback: Any, name: str) -> None:
        inner: Callable[..., None] = callback.on_step_end

        def timed(*arguments: Any) -> None:
            start = time.process_time()
            inner(*arguments)
            self.spent[name] += time.process_time() - start

        callback.on_step_end = timed

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.spent[BEFORE] = self.start
        self.spent[FIT] = time.process_time() - self.start
        (self.folder / f"{time.time_ns()}.parts").write_text(json.dumps(self.spent))
