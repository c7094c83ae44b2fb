"""Reports of many runs: CPU time, memory and page of `diffusion-lab report` with 10 to 1,000 runs.

Synthetic sweeps of digits (`many_runs`): methods x 4 seeds, 40 lines of training per run; and 8 runs of up to a million
steps, with a line for every 50. First without anything that an earlier report leaves (stored compositions, digests),
then again. Peak memory is that of the process. `python -m
benchmarks.scale_reports` prints the lines alone; `python -m benchmarks.scale_reports FOLDER METHODS` writes a sweep.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.many_runs import write_runs
from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most

METHODS, SEEDS = (2, 6, 24, 100, 250), 4
STEPS, LOGGED = (10_000, 100_000, 1_000_000), 50


class Made(NamedTuple):
    """One report: CPU seconds, peak memory in MB, and size of its page in MB."""

    cpu: float
    memory: float
    page: float


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as top:
        found = {count: _both(Path(top), count) for count in METHODS}
        long = {steps: _both(Path(top), METHODS[0], steps // LOGGED, steps) for steps in STEPS}
    for count, (first, again) in found.items():
        what, last = f"{count * SEEDS:,} runs of {count} methods", count == METHODS[-1]
        yield Line(f"{what}: CPU, first", _one(first.cpu), at_most(60) if last else None, "s")
        yield Line(f"{what}: CPU, again", _one(again.cpu), unit="s")
        yield Line(f"{what}: memory", _one(first.memory), at_most(1000) if last else None, "MB")
        yield Line(f"{what}: page", _one(first.page), at_most(8) if last else None, "MB")
    low, high = found[METHODS[-2]], found[METHODS[-1]]
    for name, one, other in zip(("first", "again"), low, high, strict=True):
        exponent = math.log(other.cpu / one.cpu) / math.log(METHODS[-1] / METHODS[-2])
        yield Line(f"exponent of CPU in the number of methods, {name}", _one(exponent), at_most(1))
    for steps, (first, again) in long.items():
        what = f"{METHODS[0] * SEEDS} runs of {steps:,} steps"
        yield Line(f"{what}: CPU, first", _one(first.cpu), unit="s")
        yield Line(f"{what}: CPU, again", _one(again.cpu), unit="s")
        yield Line(f"{what}: memory", _one(first.memory), unit="MB")
    growth = math.log(long[STEPS[-1]][1].cpu / long[STEPS[0]][1].cpu) / math.log(STEPS[-1] / STEPS[0])
    yield Line("exponent of CPU in the number of steps, again", _one(growth), at_most(0.2))


def _both(top: Path, methods: int, logs: int = 40, steps: int = 2000) -> tuple[Made, Made]:
    folder, cache = top / f"{methods}-{logs}", str(top / f"cache-{methods}-{logs}")
    write_runs(folder, methods, SEEDS, logs, steps)
    return report(folder, cache), report(folder, cache)


def report(folder: Path, cache: str) -> Made:
    """A report in a new process."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(folder, cache, theirs))
    process.start()
    theirs.close()
    try:
        return Made(*ours.recv())
    finally:
        process.join()


def _report(folder: Path, cache: str, out) -> None:
    """In the child."""
    os.environ["DIFFUSION_LAB_CACHE"] = cache
    from diffusion_lab.cli.commands.report import main

    sys.stdout = open(os.devnull, "w")
    if main([str(folder)]):
        raise RuntimeError(f"no report of {folder}")
    spent = resource.getrusage(resource.RUSAGE_SELF)
    size = (folder / "report.html").stat().st_size / 1e6
    lines_of = Path("/proc/self/status").read_text().splitlines()  # ru_maxrss is at least that of the process before
    peak = int(next(line for line in lines_of if line.startswith("VmHWM")).split()[1]) / 1024
    out.send((spent.ru_utime + spent.ru_stime, peak, size))


def _one(value: float) -> Ratio:
    return Ratio.of([value])


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_runs(Path(sys.argv[1]), int(sys.argv[2]), SEEDS)
    else:
        for line in lines():
            print(" | ".join(line.cells()), flush=True)
