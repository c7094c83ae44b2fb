"""The selection of benchmarks on the command line, and the process of one benchmark."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import pkgutil
import time
import traceback
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection

import benchmarks.lines
from benchmarks.table import Benchmark


def files(folders: Iterable[str]) -> list[str]:
    """Names of the modules in a package's `__path__`, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(folders) if module.name != "__main__")


def chosen(command: str, about: str, names: Sequence[str]) -> list[str]:
    """Names that were typed after `python -m COMMAND`; empty for all. Limits child processes to one thread.

    Args:
        command: the module that is run.
        about: its docstring, whose first line `--help` shows.
        names: allowed names.

    Raises:
        SystemExit: with code 2 and a message, for an unknown name.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=about.split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all by default")
    only = parser.parse_args().only
    unknown = [name for name in only if name not in names]
    if unknown:
        parser.error(f"{unknown[0]!r} must be one of {', '.join(names)}")
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # before any child imports torch or NumPy
    return only


def names() -> list[str]:
    """The files of `lines/`, in alphabetical order."""
    return files(benchmarks.lines.__path__)


def measure(name: str) -> Benchmark:
    """Measure in a new process and print the lines as they arrive."""
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
