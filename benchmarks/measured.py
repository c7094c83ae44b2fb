"""One benchmark in a process of its own."""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from multiprocessing.connection import Connection
from typing import NamedTuple

import benchmarks.lines
from benchmarks.chosen import files
from benchmarks.line import Line


class Benchmark(NamedTuple):
    """What one file of `lines/` gave."""

    name: str
    title: str
    lines: list[Line]
    seconds: float
    error: str = ""


def names() -> list[str]:
    """The files of `lines/`, in alphabetical order."""
    return files(benchmarks.lines)


def measure(name: str) -> Benchmark:
    """Measure in a new process; its lines are printed as they come."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    start = time.perf_counter()
    process = context.Process(target=_lines, args=(name, theirs))
    process.start()
    theirs.close()
    title, lines, error = name, [], ""
    try:
        while True:
            kind, value = ours.recv()
            if kind == "line":
                lines.append(value)
                print("  " + " | ".join(cell for cell in value.cells() if cell), flush=True)
            elif kind == "title":
                title = value
                print(f"{name}: {title}", flush=True)
            else:
                error = value
    except EOFError:
        process.join()
    if process.exitcode and not error:
        error = f"ended with exit code {process.exitcode}"
    return Benchmark(name, title, lines, time.perf_counter() - start, error)


def _lines(name: str, out: Connection) -> None:
    """The child."""
    try:
        module = importlib.import_module(f"benchmarks.lines.{name}")
        out.send(("title", (module.__doc__ or name).split("\n")[0].rstrip(".")))
        for line in module.lines():
            out.send(("line", line))
    except Exception as error:
        traceback.print_exc()
        out.send(("error", f"{type(error).__name__}: {error}"))
