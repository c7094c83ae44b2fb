"""Start-up: what is answered before anything is trained.

CPU seconds (user and system) of the whole process for commands that do not import torch. Median over 5 rounds, in each
of which every command runs once. A misspelt setting and a misspelt option must end with exit code 2. The import of
Lightning, which none of them needs, is a reference for this machine, measured once before the rounds and once after
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from benchmarks.commands import spend
from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most

ROUNDS = 5
GOAL = at_most(0.7)


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(folder)
        seconds: dict[str, list[float]] = {name: [] for name in answers}
        lightning = [_import(folder)]
        for _ in range(ROUNDS):
            for name, answer in answers.items():
                seconds[name].append(answer())
        lightning.append(_import(folder))
    for name, values in seconds.items():
        yield Line(name, Ratio.of(values), GOAL, "s")
    yield Line("import lightning", Ratio.of(lightning), unit="s")


def _answers(folder: str) -> dict[str, Callable[[], float]]:
    """Name -> what runs the command and gives its CPU seconds."""

    def cpu(*words: str, code: int = 0, **variables: str) -> Callable[[], float]:
        return lambda: spend(words, folder, code, **variables).cpu

    return {
        "--help": cpu("--help"),
        "train --help": cpu("train", "--help"),
        "train --cfg job": cpu("train", "--cfg", "job"),
        "a misspelt setting: train max_stepz=3": cpu("train", "max_stepz=3", code=2),
        "a misspelt option: train network=unet_tiy": cpu("train", "network=unet_tiy", code=2),
        "completion of `train sampler=s`": cpu("-sc", "query=bash", COMP_LINE="diffusion-lab train sampler=s"),
        "train -sc install=bash": cpu("train", "-sc", "install=bash"),
    }


def _import(folder: str) -> float:
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", "import lightning.pytorch"], cwd=folder)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime
