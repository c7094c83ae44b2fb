"""Run jobs in parallel: slots, time limits, signals and outcomes."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hydra.types import HydraContext, TaskFunction

from diffusion_lab.cli.errors import EXIT_LOCKED
from diffusion_lab.cli.processes import local_devices, on_cpu
from diffusion_lab.held_folder import is_elsewhere
from diffusion_lab.runs.record import as_error, read_result, result_stamp, write_failure
from diffusion_lab.workers import JOBS
from hydra_plugins.diffusion_lab_launcher._child import (
    RANK_VARIABLES,
    Child,
    fork,
    handled_signals,
    needs_command,
    start_command,
)
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._screen import GOOD, Screen

POLL_S = (0.02, 0.2)  # shortest and longest polling interval: a poll takes 0.15 ms of CPU, 2 s in a sweep of minutes
POLL_SHARE = 0.01  # of the time of the job that started last, between the two
GRACE_S = 30.0  # time from asking a late job to stop until it is killed


@dataclass
class _Running:
    job: Job
    child: Child
    slot: int
    started: float
    result_before: tuple[int, int] | None
    since: float = field(default_factory=time.time)  # Unix time, as that of files
    asked: float | None = None  # when a late job was asked to stop


class Pool:
    """Runs jobs, `n_jobs` at a time.

    Args:
        task, context: as Hydra gives them to a launcher; without a context each job is a new command, as it must be
            where this process has threads.
        n_jobs: slots.
        threads: threads of a single process; each slot gets an equal share, at least 1.
        gpus: names of those to divide among the slots, or None.
        timeout_s, fail_fast: see the launcher.
    """

    def __init__(
        self,
        task: TaskFunction,
        context: HydraContext | None,
        n_jobs: int,
        threads: int,
        gpus: list[str] | None,
        timeout_s: float | None,
        fail_fast: bool,
    ) -> None:
        self.task, self.context, self.n_jobs = task, context, n_jobs
        self.threads = max(1, threads // n_jobs)
        self.gpus, self.timeout_s, self.fail_fast = gpus, timeout_s, fail_fast
        self.stopped_by = 0  # the signal that ended the sweep
        self._signals_seen = self._signals_forwarded = 0
        self._killed = False  # by a second signal

    def run(self, jobs: list[Job], screen: Screen) -> list[Outcome]:
        """All jobs; returns their outcomes in the same order."""
        outcomes: dict[int, Outcome] = {}
        waiting, running = list(jobs), list[_Running]()
        with self._signals(), _garbage_frozen(), screen:
            while waiting or running:
                self._forward_signal(running, screen)
                self._start(waiting, running, outcomes, screen)
                screen.show([(item.job, item.since) for item in running])
                for item in list(running):
                    outcome = self._outcome(item)
                    if outcome is not None:
                        running.remove(item)
                        outcomes[item.job.index] = outcome
                        screen.finished(outcome)
                if running:
                    time.sleep(pause(time.monotonic() - max(item.started for item in running)))
        return [outcomes[job.index] for job in jobs]

    def _start(self, waiting: list[Job], running: list[_Running], outcomes: dict[int, Outcome], screen: Screen) -> None:
        """Fill the free slots; jobs that are done, or will not be started, get their outcome here."""
        failed = any(outcome.status not in GOOD for outcome in outcomes.values())
        while waiting and len(running) < self.n_jobs:
            job = waiting[0]
            if any(item.job.folder == job.folder for item in running):
                return  # the same configuration twice: the second will be skipped
            waiting.pop(0)
            if self.stopped_by or (failed and self.fail_fast) or is_elsewhere(job.folder):
                outcome = Outcome(job, "not started")
            elif job.needs_nothing():
                outcome = Outcome(job, "skipped", value=sweep_value(job))
            else:
                slot = min(set(range(self.n_jobs)) - {item.slot for item in running})
                running.append(self._launch(job, slot))
                continue
            outcomes[job.index] = outcome
            screen.finished(outcome)

    def _launch(self, job: Job, slot: int) -> _Running:
        environment = {key: value for key, value in os.environ.items() if key not in RANK_VARIABLES}
        trainer = job.config.get("trainer")
        shared = local_devices(trainer) if trainer is not None and on_cpu(trainer) else 1  # by a job's processes
        threads = max(1, self.threads // shared)
        environment |= {"OMP_NUM_THREADS": str(threads), JOBS: str(self.n_jobs)}
        if self.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[slot :: self.n_jobs])
        before = result_stamp(job.folder)
        if self.context is None or needs_command(job):
            child = start_command(job, getattr(self.task, "arguments", []), environment)
        else:
            child = fork(job, self.task, self.context, environment, threads)
        return _Running(job, child, slot, time.monotonic(), before)

    def _outcome(self, item: _Running) -> Outcome | None:
        """The outcome of a job that has ended, else None; a job over its time limit is asked to stop, then killed."""
        code = item.child.poll()
        seconds = time.monotonic() - item.started
        if code is None:
            if self.timeout_s is not None and seconds > self.timeout_s and item.asked is None:
                item.asked = seconds
                item.child.ask(signal.SIGTERM)
            elif item.asked is not None and seconds > item.asked + GRACE_S:
                item.child.kill(signal.SIGKILL)
            return None
        outcome = self._judge(item, code)
        outcome.seconds = seconds
        return outcome

    def _judge(self, item: _Running, code: int) -> Outcome:
        job, sent = item.job, item.child.message()
        error = sent.get("error")
        if code == 0 and (job.is_done() or job.is_pruned()):
            return ended(job, sent)
        if code == EXIT_LOCKED and (error is not None or not item.child.forked):
            return Outcome(job, "locked", "another process is training it")
        if self.stopped_by and (code == 128 + self.stopped_by or code == -self.stopped_by):
            return Outcome(job, "interrupted", f"stopped by signal {self.stopped_by}")
        if self._killed and code == -signal.SIGKILL:
            return Outcome(job, "interrupted", f"killed by the second signal {self.stopped_by}")
        if item.asked is not None:
            status, kind = "timeout", "Timeout"
            reason = f"took longer than hydra.launcher.timeout_s={self.timeout_s:g} s; the same command continues it"
        elif code < 0:
            status, kind, reason = "killed", "killed", _killed_by(-code)
        elif error is not None:
            status, kind, reason = "failed", error["type"], first_line(error)
        else:
            written = read_result(job.folder).get("error") if result_stamp(job.folder) != item.result_before else None
            status, kind = "failed", "exit"
            reason = first_line(written) if written else _ended(code, job)
        if status != "failed" or result_stamp(job.folder) == item.result_before:
            message = error["message"] if status == "failed" and error else reason
            if not is_elsewhere(job.folder) and job.folder.is_dir():  # else it was moved or removed meanwhile
                write_failure(job.folder, as_error(kind, message, (error or {}).get("traceback", "")))
        return Outcome(job, status, reason)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Forward the first signal to the jobs, which write a checkpoint; the second one kills them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in handled_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        self.stopped_by = number
        self._signals_seen += 1

    def _forward_signal(self, running: list[_Running], screen: Screen) -> None:
        """Forward a new signal to the running jobs."""
        if self._signals_forwarded == self._signals_seen:
            return
        first = self._signals_forwarded == 0
        self._signals_forwarded = self._signals_seen
        screen.stopping(self.stopped_by, len(running), first)
        for item in running:
            item.child.ask(self.stopped_by) if first else item.child.kill(signal.SIGKILL)
        self._killed = not first


def pause(seconds: float) -> float:
    """Seconds until the next poll, if the job that started last has run for `seconds`."""
    shortest, longest = POLL_S
    return min(longest, max(shortest, POLL_SHARE * seconds))


@contextmanager
def _garbage_frozen() -> Iterator[None]:
    """Exclude existing objects from garbage collection: in a forked job, a collection would visit everything that was
    imported before the fork and so copy its pages."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def sweep_value(job: Job) -> float | None:
    """The value in result.json that the key `objective` names."""
    return job.metrics().get(job.config.get("objective") or "")


def ended(job: Job, sent: dict) -> Outcome:
    """The outcome of a job that ended without an error; `sent` is its message, which may have its value."""
    value = sent.get("value", sweep_value(job))
    if not job.is_pruned():
        return Outcome(job, "done", value=value)
    return Outcome(job, "pruned", (read_result(job.folder).get("error") or {}).get("message", ""), value=value)


def _killed_by(number: int) -> str:
    name = signal.Signals(number).name if number in list(signal.Signals) else ""
    hint = ", perhaps out of memory" if number == signal.SIGKILL else ""
    return f"killed by signal {number} ({name}){hint}"


def _ended(code: int, job: Job) -> str:
    early = f" before max_steps={job.config.get('max_steps')}, and" if code == 0 else ""
    return f"exit code {code}{early} without a message; see its log"


def first_line(error: dict) -> str:
    """The error of a job in one line."""
    lines = str(error.get("message", "")).splitlines() or [""]
    return f"{error.get('type')}: {lines[0]}"
