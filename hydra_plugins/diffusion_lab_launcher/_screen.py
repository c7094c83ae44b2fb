"""The output of a sweep: a line for each job that ends, below them on a terminal a live table of those that run, in a
log file a line of them if nothing else was printed for a while, and the unfinished jobs at the end.

    [ 3/12] done        sampler=speed seed=0  41 s  fd1k_digits 2.314  eta 5 min 20 s
    [ 3/12] running     sampler=speed seed=1 400/2000, sampler=speed seed=2 380/2000  eta 5 min 20 s

    running                   step         eta  newest metric
    sampler=speed seed=1  400/2000  1 min 05 s  fd1k_digits 3.207
    ━━━━━━━━╸━━━━━━━━━━━━ 3/12 done, 1 failed, 7 waiting  eta 5 min 20 s
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.printable import escape_output, make_console
from diffusion_lab.progress import duration
from diffusion_lab.runs.names import LOG
from diffusion_lab.runs.shell_commands import command
from hydra_plugins.diffusion_lab_launcher._job_progress import (
    JobProgress,
    job_progress,
    steps_left,
    steps_of,
    sweep_rest,
)

if TYPE_CHECKING:
    from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome


GOOD = ("done", "skipped", "locked", "pruned")
REDRAW_S = 1.0  # seconds between two readings of the running jobs' files
ROWS = 8  # of running jobs
LINE_S = (10.0, 60.0)  # in a log file, seconds without a line until those that run have one: the first, and later ones


class Screen:
    """Prints the progress of a sweep to standard output.

    Args:
        jobs: all of them, in the order in which they are started.
        folder: the sweep folder.
        slots: jobs at a time, >= 1.
    """

    def __init__(self, jobs: Sequence[Job], folder: Path, slots: int = 1) -> None:
        self.jobs, self.folder, self.slots = jobs, folder, slots
        words = differing([job.overrides for job in jobs], [job.name for job in jobs])
        self.words = {job.index: text for job, text in zip(jobs, words, strict=True)}
        self._left = {job.index: steps_left(job) for job in jobs}  # steps at the start of the sweep
        self._whole: list[tuple[float, int]] = []  # of each job that is done now, seconds of all its starts, and steps
        self._ended: list[Outcome] = []
        self._running: list[tuple[Job, float, JobProgress]] = []  # with the Unix time of its start
        self._read = 0.0
        self._said, self._silence = time.monotonic(), LINE_S[0]
        self._live: Any = None

    def __enter__(self) -> Screen:
        print(f"{len(self.jobs)} job{'s' * (len(self.jobs) != 1)} in {self.folder}", flush=True)
        if sys.stdout.isatty():
            from rich.live import Live

            # Drawn from the launcher's loop: a drawing thread could hold a lock during a fork.
            self._live = Live(console=make_console(), auto_refresh=False, transient=True)
            self._live.start()
            escape_output()  # again, because rich has replaced the streams
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, running: Sequence[tuple[Job, float]]) -> None:
        """Take note of the running jobs, with the Unix times of their starts, and draw them, about once a second."""
        now = time.monotonic()
        same = [job for job, _ in running] == [job for job, _, _ in self._running]
        if same and now - self._read < REDRAW_S:
            return
        self._read = now
        self._running = [(job, started, job_progress(job, started)) for job, started in running]
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif self._running and now - self._said >= self._silence:
            self._silence = LINE_S[1]
            where = [f"{self.words[job.index]} {at.step}/{at.steps}" for job, _, at in self._running[:ROWS]]
            more = [f"{len(self._running) - ROWS} more"] if len(self._running) > ROWS else []
            self._line("running", ", ".join([*where, *more]), self._eta())

    def finished(self, outcome: Outcome) -> None:
        """Print one line: number, status, what differs, time, the first metric or the reason, and the sweep's rest."""
        self._ended.append(outcome)
        if outcome.status == "done" and outcome.seconds:
            trained = job_progress(outcome.job, 0.0).trained
            self._whole.append((max(outcome.seconds, trained), steps_of(outcome.job)))
        status = "done before" if outcome.status == "skipped" else outcome.status
        seconds = duration(outcome.seconds) if outcome.seconds else ""
        rest = self._eta() if self._live is None and outcome.seconds else ""
        self._line(status, self.words[outcome.job.index], seconds, outcome.reason or _metric(outcome), rest)

    def _line(self, status: str, *words: str) -> None:
        """Print a line with the number of jobs that have ended."""
        first = f"[{len(self._ended):>{len(str(len(self.jobs)))}}/{len(self.jobs)}] {status:<11} {words[0]}"
        print("  ".join(filter(None, [first, *words[1:]])), flush=True)  # rich moves the table out of its way
        self._said = time.monotonic()

    def _eta(self) -> str:
        """ "eta 5 min 20 s", or "" if that is not known or nothing is left."""
        return f"eta {duration(rest)}" if (rest := self._rest()) else ""

    def stopping(self, number: int, running: int, first: bool) -> None:
        """Print that a signal was received, and its effect."""
        what = "waiting for checkpoints; once more to kill" if first else "killing"
        print(f"signal {number}: {running} running jobs, {what}", flush=True)

    def summary(self, outcomes: list[Outcome]) -> None:
        """Print the jobs that are not done, by cause, with what differs and their logs, and what to do next."""
        bad: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in outcomes:
            if outcome.status not in GOOD:
                bad.setdefault((outcome.status, outcome.reason), []).append(outcome)
        if bad:
            print(f"\n{sum(map(len, bad.values()))} of {len(outcomes)} jobs are not done:")
            for (status, reason), alike in bad.items():
                print(f"  {status}: {reason}" if reason else f"  {status}")
                for outcome in alike:
                    print(f"    {self.words[outcome.job.index]}")
                    if status != "not started":
                        print(f"      log: {outcome.job.folder / LOG}")
            print("The same command runs only the missing jobs.")
        locked = [self.words[outcome.job.index] for outcome in outcomes if outcome.status == "locked"]
        if locked:
            print(f"\nin another process: {', '.join(locked)}")
        print(f"\nnext: {command('report', self.folder)}", flush=True)

    def _waiting(self) -> list[Job]:
        seen = {outcome.job.index for outcome in self._ended} | {job.index for job, _, _ in self._running}
        return [job for job in self.jobs if job.index not in seen]

    def _rest(self) -> float | None:
        """Seconds until the end of the sweep, None if that is not known yet."""
        ended = {outcome.job.index for outcome in self._ended}
        now = time.time()
        running = [
            (now - started, self._left[job.index], at) for job, started, at in self._running if job.index not in ended
        ]
        return sweep_rest(running, [self._left[job.index] for job in self._waiting()], self._whole, self.slots)

    def _table(self) -> Any:
        """The running jobs and the bar of the sweep."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        rows = Table(box=None, pad_edge=False, expand=False, header_style="dim")
        rows.add_column("running", no_wrap=True, overflow="ellipsis")
        for name in ("step", "eta"):
            rows.add_column(name, justify="right", no_wrap=True, min_width=7)
        rows.add_column("newest metric", no_wrap=True, overflow="ellipsis", min_width=8)
        for job, _, at in self._running[:ROWS]:
            rest = "" if at.rest is None else duration(at.rest)
            rows.add_row(self.words[job.index], f"{at.step}/{at.steps}", rest, at.metric)
        if len(self._running) > ROWS:
            rows.add_row(f"and {len(self._running) - ROWS} more")
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(ProgressBar(total=len(self.jobs), completed=len(self._ended)), self._counts())
        return Group(rows, bar) if self._running else bar

    def _counts(self) -> str:
        """ "3/12 done, 1 failed, 7 waiting  eta 5 min 20 s" """
        failed = sum(outcome.status not in GOOD for outcome in self._ended)
        words = [f"{len(self._ended) - failed}/{len(self.jobs)} done"]
        words += [f"{failed} failed"] if failed else []
        words += [f"{waiting} waiting"] if (waiting := len(self._waiting())) else []
        rest = self._rest()
        return ", ".join(words) + ("" if rest is None else f"  eta {duration(rest)}")


def _metric(outcome: Outcome) -> str:
    """The first metric of result.json, without its group."""
    metrics = outcome.job.metrics()
    names = [name for name in metrics if name.startswith("metrics/")] or list(metrics)
    if not names:
        return ""
    value = metrics[names[0]]  # None: it was not finite
    return f"{names[0].removeprefix('metrics/')} {'not finite' if value is None else format(value, '.4g')}"


def differing(jobs: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Of each job the overrides that not all jobs have: "sampler=speed seed=1".

    Args:
        jobs: overrides of each job.
        names: in place of the overrides where these do not tell a job from another one.
    """
    shared = set.intersection(*(set(overrides) for overrides in jobs)) if jobs else set()
    words = [" ".join(word for word in overrides if word not in shared) for overrides in jobs]
    return [text if text and words.count(text) == 1 else name for text, name in zip(words, names, strict=True)]
