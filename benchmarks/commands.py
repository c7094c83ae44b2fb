"""The cost of a whole command: wall time, and CPU time of its process and all child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple


class Spent(NamedTuple):
    """Time of one command in seconds."""

    wall: float
    cpu: float


def spend(arguments: Sequence[str], folder: str, code: int = 0, **variables: str) -> Spent:
    """Run `diffusion-lab ARGUMENTS` in a folder, in a new process with one thread, which keeps what Python compiles, as
    an installation does.

    Args:
        arguments: words of the command.
        folder: working folder.
        code: the expected exit code.
        variables: environment variables in addition to this process's.

    Raises:
        RuntimeError: it ended with another exit code; the message has its output.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "diffusion_lab.cli.main", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        raise RuntimeError(f"`diffusion-lab {' '.join(arguments)}` ended with {process.returncode}: {said[-2000:]}")
    return Spent(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)
