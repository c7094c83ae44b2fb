"""Launchers whose jobs start when a queue, of a cluster or of Ray, has room for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffusion_lab.arguments import is_number
from diffusion_lab.cli.errors import ConfigError
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome, in_turns
from hydra_plugins.diffusion_lab_launcher._pool import sweep_value
from hydra_plugins.diffusion_lab_launcher._screen import Screen
from hydra_plugins.diffusion_lab_launcher.launcher import DiffusionLabLauncher


class QueueLauncher(DiffusionLabLauncher):
    """Submits the unfinished jobs of a sweep and waits for them. Subclasses define `submit`, `outcome` and
    `interrupted`.

    Args:
        poll_s: polling interval in seconds.
    """

    def __init__(self, poll_s: float) -> None:
        super().__init__()
        if not (is_number(poll_s) and poll_s > 0):
            raise ConfigError(f"hydra.launcher.poll_s={poll_s} must be > 0 seconds; use 10")
        self.poll_s = poll_s

    def submit(self, jobs: list[Job], folder: Path) -> Sequence[Any]:
        """A handle of each job, whose method `done()` says whether it has ended; `folder` is the sweep's."""
        raise NotImplementedError

    def outcome(self, job: Job, handle: Any) -> Outcome:
        """The outcome of a job whose handle says that it is done."""
        raise NotImplementedError

    def interrupted(self, handles: list[Any]) -> None:
        """What becomes of the jobs that are not done when the launcher is stopped."""
        raise NotImplementedError

    def run_jobs(self, jobs: list[Job], folder: Path, threads: int) -> list[Outcome]:
        outcomes = {job.index: Outcome(job, "skipped", value=sweep_value(job)) for job in jobs if job.needs_nothing()}
        first = {job.folder: job for job in reversed(jobs)}  # a job that stands twice is submitted once
        again = [job for job in jobs if job.index not in outcomes and job is not first[job.folder]]
        waiting = in_turns([job for job in jobs if job.index not in outcomes and job is first[job.folder]])
        screen = Screen(jobs, folder, max(1, len(waiting)))  # the queue starts them as it likes
        with screen:
            for outcome in outcomes.values():
                screen.finished(outcome)
            submitted = list(zip(waiting, self.submit(waiting, folder), strict=True)) if waiting else []
            since = time.time()
            try:
                while submitted:
                    screen.show([(job, since) for job, _ in submitted])
                    for job, handle in [pair for pair in submitted if pair[1].done()]:
                        submitted.remove((job, handle))
                        outcomes[job.index] = self.outcome(job, handle)
                        screen.finished(outcomes[job.index])
                    time.sleep(self.poll_s if submitted else 0)
            except KeyboardInterrupt:
                self.interrupted([handle for _, handle in submitted])
                raise
            for job in again:
                outcomes[job.index] = replace(outcomes[first[job.folder].index], job=job, seconds=0.0)
                screen.finished(outcomes[job.index])
        ordered = [outcomes[job.index] for job in jobs]
        screen.summary(ordered)
        return ordered
