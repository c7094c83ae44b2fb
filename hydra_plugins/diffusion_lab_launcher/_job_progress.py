"""Where the running jobs of a sweep stand, read from their folders, and how long the sweep still takes."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS, TIMING
from hydra_plugins.diffusion_lab_launcher._jobs import Job


class JobProgress(NamedTuple):
    """The step that a job has last told, all its steps, the seconds that it has trained, summed over its starts, those
    that it still takes (None: not known yet), and its newest metric ("": none yet)."""

    step: int
    steps: int
    trained: float
    rest: float | None
    metric: str


def job_progress(job: Job, started: float) -> JobProgress:
    """Read where a job stands; `started` (Unix time) tells what it has written itself from an earlier attempt."""
    timings, metrics = read_lines(job.folder / TIMING), read_lines(job.folder / EVALUATIONS)
    told = timings[-1] if timings else {}
    rest = None
    if timings and (written := (job.folder / TIMING).stat().st_mtime) >= started:
        eta = told.get("eta_seconds")
        rest = max(0.0, eta - (time.time() - written)) if isinstance(eta, int | float) else None
    step = max([line["step"] for line in (*timings[-1:], *metrics[-1:])], default=0)  # either may be newer
    seconds = told.get("seconds")
    trained = float(seconds) if isinstance(seconds, int | float) else 0.0
    return JobProgress(step, steps_of(job), trained, rest, metric_text(metrics[-1]) if metrics else "")


def steps_of(job: Job) -> int:
    """max_steps; 1 if the configuration has none."""
    return max(1, int(job.config.get("max_steps") or 1))


def steps_left(job: Job) -> int:
    """The steps that a job has still to train when the sweep starts: max_steps without those that an earlier start has
    told, unless it begins again; 0 if it is done."""
    if job.needs_nothing():
        return 0
    told = 0 if job.config.get("anew") else job_progress(job, 0.0).step
    return max(0, steps_of(job) - told)


def metric_text(line: dict[str, Any]) -> str:
    """ "fd1k_digits 0.5151": a line of evaluations.jsonl."""
    value = line.get("value")
    return f"{line.get('name')} {value:.4g}" if isinstance(value, int | float) else ""


def sweep_rest(
    running: Sequence[tuple[float, int, JobProgress]],
    waiting: Sequence[int],
    ended: Sequence[tuple[float, int]],
    slots: int,
) -> float | None:
    """Seconds until the last job ends, if each job that waits starts in the slot that is free first and takes as long
    per step as those that have ended, or else as those that run. Whole jobs tell how long a step takes, with the
    seconds of all their starts; a job that goes on has only its last steps to train.

    Args:
        running: seconds since the start, steps that were left at the start, and standing, of each running job.
        waiting: steps that are left of each job that waits, in their order.
        ended: seconds and steps of each job that this sweep ended, as a whole.
        slots: jobs at a time, also at a moment when fewer run because one has just ended.

    Returns:
        None as long as neither a job has ended nor a running one has told its own rest.
    """
    known = [(max(passed, at.trained) + at.rest, at.steps) for passed, _, at in running if at.rest is not None]
    if not (ended or known):
        return None
    seconds, steps = (sum(column) for column in zip(*(ended or known), strict=True))
    per_step = seconds / steps
    rests = [max(0.0, per_step * left - passed) if at.rest is None else at.rest for passed, left, at in running]
    free = [*rests, *[0.0] * (slots - len(rests))]  # when each slot is free
    heapq.heapify(free)
    for left in waiting:
        heapq.heapreplace(free, free[0] + per_step * left)
    return max(free)
