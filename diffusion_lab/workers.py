"""How many processes load the batches of a training process."""

from __future__ import annotations

import multiprocessing
import os

MOST = 8  # for each training process, since each holds two batches
JOBS = "DIFFUSION_LAB_JOBS"  # environment variable: jobs of a sweep that share this machine's cores


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_workers(processes: int) -> int:
    """Processes that decode the batches of one training process: one for each of its cores but one, 0..`MOST`.

    None where processes are not forked (Windows, macOS, Python 3.14), since images of a class of the user's own may be
    no value that can be sent to another process.

    Args:
        processes: training processes of this run on this machine, which share its cores.
    """
    usual = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if usual != "fork":
        return 0
    share = min(_number("SLURM_CPUS_PER_TASK") or cores() // processes, cores()) // max(1, _number(JOBS))
    return min(max(share - 1, 0), MOST)


def _number(variable: str) -> int:
    """Of an environment variable; 0 if it holds none."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0
