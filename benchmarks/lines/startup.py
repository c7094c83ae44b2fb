"""Start-up: what is answered before anything is trained.

CPU seconds (user and system) of the whole process for commands that do not import torch, as a share of those of `import
lightning`, which none of them needs, in the same round: an absolute time would change with the machine. Median over 5
rounds. A misspelt setting, a value of the wrong type and a misspelt option must end with exit code 2. The first word is
the wall time from the start of a training on a terminal until it has printed something.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from benchmarks.commands import spend
from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most

ROUNDS = 5
GOAL = at_most(10)
IMPORT = "import lightning"


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(folder) | {IMPORT: lambda: _import(folder)}
        seconds: dict[str, list[float]] = {name: [] for name in answers}
        words: list[float] = []
        for _ in range(ROUNDS):
            for name, answer in answers.items():
                seconds[name].append(answer())
            words.append(_first_word(folder))
    for name, values in seconds.items():
        if name != IMPORT:
            shares = [100 * value / whole for value, whole in zip(values, seconds[IMPORT], strict=True)]
            yield Line(name, Ratio.of(shares), GOAL, "%", note=f"{Ratio.of(values)} s")
    yield Line(IMPORT, Ratio.of(seconds[IMPORT]), unit="s")
    yield Line("the first word of a training on a terminal", Ratio.of(words), at_most(0.5), "s")


def _answers(folder: str) -> dict[str, Callable[[], float]]:
    """Name -> what runs the command and gives its CPU seconds."""

    def cpu(*words: str, code: int = 0, **variables: str) -> Callable[[], float]:
        return lambda: spend(words, folder, code, **variables).cpu

    return {
        "--help": cpu("--help"),
        "train --help": cpu("train", "--help"),
        "train --cfg job": cpu("train", "--cfg", "job"),
        "a misspelt setting: train max_stepz=3": cpu("train", "max_stepz=3", code=2),
        "a value of the wrong type: train max_steps=abc": cpu("train", "max_steps=abc", code=2),
        "an unknown word: train lr=1e-4": cpu("train", "lr=1e-4", code=2),
        "a misspelt option: train network=unet_tiy": cpu("train", "network=unet_tiy", code=2),
        "completion of `train sampler=s`": cpu("-sc", "query=bash", COMP_LINE="diffusion-lab train sampler=s"),
        "train -sc install=bash": cpu("train", "-sc", "install=bash"),
    }


def _import(folder: str) -> float:
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", "import lightning.pytorch"], cwd=folder)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


def _first_word(folder: str) -> float:
    """Wall seconds from starting a training until its first output on a terminal; the training is stopped then."""
    ours, its = pty.openpty()
    start = time.monotonic()
    command = [sys.executable, "-m", "diffusion_lab.cli.main", "train"]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=folder)
    os.close(its)
    try:
        os.read(ours, 1)
        return time.monotonic() - start
    finally:
        process.kill()
        process.wait()
        os.close(ours)
