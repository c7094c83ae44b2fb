"""The output of a sweep: one line per finished job, a progress bar on a terminal, and the unfinished jobs at the
end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.runs.names import LOG

if TYPE_CHECKING:
    from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome

BAD = ("failed", "killed", "timeout", "interrupted", "not started")
REDRAW_S = 0.2


class Screen:
    """Prints the progress of a sweep to standard output.

    Args:
        total: number of jobs.
        folder: the sweep folder.
    """

    def __init__(self, total: int, folder: Path) -> None:
        self.total, self.folder, self._count = total, folder, 0
        self._bar: Any = None
        self._drawn = 0.0

    def __enter__(self) -> Screen:
        print(f"{self.total} jobs in {self.folder}", flush=True)
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            # Drawn from the launcher's loop: a drawing thread could hold a lock during a fork.
            self._bar = Progress(*columns, auto_refresh=False)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._count, description="", refresh=True)
            self._bar.stop()
            self._bar = None

    def show(self, running: list[Job]) -> None:
        """Name the running jobs beside the bar, a few times a second."""
        if self._bar is not None and time.monotonic() - self._drawn > REDRAW_S:
            self._drawn = time.monotonic()
            names = ", ".join(job.name for job in running[:3]) + (" ..." if len(running) > 3 else "")
            self._bar.update(self._task, completed=self._count, description=names, refresh=True)

    def finished(self, outcome: Outcome) -> None:
        """Print one line: number, status, name, time, and the first metric or the reason."""
        self._count += 1
        width = len(str(self.total))
        status = "done before" if outcome.status == "skipped" else outcome.status
        line = f"[{self._count:>{width}}/{self.total}] {status:<11} {outcome.job.name}"
        if outcome.seconds:
            line += f"  {outcome.seconds:.0f} s"
        line += f"  {outcome.reason or _metric(outcome)}"
        print(line.rstrip(), flush=True)  # rich's bar moves out of the way of print

    def stopping(self, number: int, running: int, first: bool) -> None:
        """Print that a signal was received, and its effect."""
        what = "waiting for checkpoints; once more to kill" if first else "killing"
        print(f"signal {number}: {running} running jobs, {what}", flush=True)

    def summary(self, outcomes: list[Outcome]) -> None:
        """Print every job that is not done, with its settings, the cause and its log, and what to do next."""
        bad = [outcome for outcome in outcomes if outcome.status in BAD]
        if bad:
            print(f"\n{len(bad)} of {len(outcomes)} jobs are not done:")
            for outcome in bad:
                print(f"  {outcome.job.name}  {' '.join(outcome.job.overrides)}")
                if outcome.status != "not started":
                    log = outcome.job.folder / LOG
                    print(f"    {outcome.status}: {outcome.reason}\n    log: {log}")
            print("The same command runs only the missing jobs.")
        locked = [outcome.job.name for outcome in outcomes if outcome.status == "locked"]
        if locked:
            print(f"\nin another process: {', '.join(locked)}")
        print(f"\nnext: diffusion-lab report {self.folder}", flush=True)


def _metric(outcome: Outcome) -> str:
    """The first metric of result.json, without its group."""
    metrics = outcome.job.metrics()
    names = [name for name in metrics if name.startswith("metrics/")] or list(metrics)
    return f"{names[0].removeprefix('metrics/')} {metrics[names[0]]:.4g}" if names else ""
