"""The launcher: check every job, then run each unfinished one in its own process.

Hydra's default launcher runs the jobs of a sweep in one process, where a killed job ends the sweep, SIGTERM ends it
with exit code 0, and the second process of a distributed job repeats the whole sweep. Here a job is a child process in
Hydra's RUN mode, in a folder that depends only on its configuration, so the same command skips finished jobs and
continues the others.

A job is forked from this process, which has imported torch and Lightning but started no thread pool and no GPU context,
so that isolation costs well under a second per job. A job that starts processes itself is run as a new command, because
Lightning executes `sys.argv` again for them.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from diffusion_lab.arguments import is_number
from diffusion_lab.cli.checks.sweeper import searching
from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, JobsFailed, MissingHere, StoppedBySignal
from diffusion_lab.cli.imports import importing
from diffusion_lab.cli.outcome import overruled_words
from diffusion_lab.cli.output_folders import check_sweep_folder
from diffusion_lab.cli.processes import gpu_count, local_devices
from diffusion_lab.held_folder import hold
from diffusion_lab.printable import logged_once
from diffusion_lab.progress import waiting
from diffusion_lab.runs.folder import forget_sweep
from hydra_plugins.diffusion_lab_launcher._composed import ComposedOnce
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome, compose_job, in_turns, name_jobs
from hydra_plugins.diffusion_lab_launcher._pool import Pool
from hydra_plugins.diffusion_lab_launcher._screen import GOOD, Screen

log = logging.getLogger(__name__)

ANNOUNCED = 20  # number of jobs from which the check is announced


class DiffusionLabLauncher(Launcher):
    """Runs the jobs of a sweep as child processes.

    Args:
        n_jobs: jobs at a time, >= 1; each gets an equal share of the threads and of `gpus`: 8 GPUs for 4 jobs with
            trainer.devices=2.
        timeout_s: seconds after which a job is asked to stop, then killed; None: no limit.
        fail_fast: start no further job after the first failure.
        gpus: GPUs to divide among the jobs, by their numbers as PyTorch counts them: among those that
            CUDA_VISIBLE_DEVICES names, where a scheduler or a shell has set it. None lets each job choose a GPU.

    Raises:
        ConfigError: an argument is out of its range.
    """

    def __init__(
        self,
        n_jobs: int = 1,
        timeout_s: float | None = None,
        fail_fast: bool = False,
        gpus: list[int] | None = None,
    ) -> None:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
            raise ConfigError(f"hydra.launcher.n_jobs={n_jobs} must be an integer >= 1; use 1")
        if timeout_s is not None and not (is_number(timeout_s) and timeout_s > 0):
            raise ConfigError(f"hydra.launcher.timeout_s={timeout_s} must be > 0 seconds; use null for no limit")
        if gpus is not None and (isinstance(gpus, str) or not isinstance(gpus, Sequence)):
            raise ConfigError(f"hydra.launcher.gpus={gpus} must be a list of GPUs, or null; use e.g. [0,1]")
        if gpus is not None and len(gpus) < n_jobs:
            raise ConfigError(
                f"hydra.launcher.gpus={list(gpus)} must name at least one GPU for each of n_jobs={n_jobs}; "
                f"use hydra.launcher.n_jobs={max(1, len(gpus))}"
            )
        self.n_jobs, self.timeout_s, self.fail_fast = n_jobs, timeout_s, fail_fast
        self.numbers = None if gpus is None else list(gpus)
        self.gpus = None if self.numbers is None else _named(self.numbers, n_jobs)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config
        self.loader = ComposedOnce(hydra_context.config_loader)
        hydra_context.config_loader = cast(ConfigLoader, self.loader)  # also used by the sweeper
        if hasattr(task_function, "sweep_folder"):  # a sweep that cannot be composed never reaches `launch`
            register_resolvers()
            task_function.sweep_folder = Path(str(config.hydra.sweep.dir))
            check_sweep_folder(task_function.sweep_folder)  # before Hydra's sweeper writes there
        self.searching = searching(config.hydra)
        if hasattr(task_function, "searching"):
            task_function.searching = self.searching

    @property
    def _root(self) -> Path:
        """The folder of runs."""
        return Path((self.config.get("paths") or {}).get("root") or "runs")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs; returns one JobReturn per job, in order, whose value raises if the job is not done."""
        setup_globals()
        register_resolvers()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        folder = Path(str(self.config.hydra.sweep.dir))
        threads = _start_single_threaded()
        if len(job_overrides) > ANNOUNCED:
            print(f"checking {len(job_overrides)} job{'s' * (len(job_overrides) != 1)}", flush=True)
        with logged_once():
            try:
                with waiting("composing and checking the jobs"):
                    jobs = [
                        compose_job(self.context, self.config, list(overrides), initial_job_idx + i)
                        for i, overrides in enumerate(job_overrides)
                    ]
                    self.loader.forget()
                    self._check(jobs)
            except BaseException:
                forget_sweep(folder, self._root)
                raise
            for line in dict.fromkeys(filter(None, (overruled_words(job.config.hydra) for job in jobs))):
                print(line, flush=True)
            if jobs and jobs[0].task_cfg.get("dry_run"):
                return self._dry_run(jobs, folder, max(1, threads // self.n_jobs))
        name_jobs(folder, getattr(self.task, "typed", sys.argv[1:]), jobs)
        outcomes = self.run_jobs(jobs, folder, threads)
        if self.searching:
            _fail_without_value(outcomes)
        return [job_return(outcome) for outcome in outcomes]

    def run_jobs(self, jobs: list[Job], folder: Path, threads: int) -> list[Outcome]:
        """The outcome of each job, in order; `threads` is the number for a single process on the machine."""
        from diffusion_lab.cli.commands.train import git_revision, versions

        for ask in (git_revision, versions):  # once, and known to all that are forked from here
            ask()
        ordered = in_turns(jobs)
        screen = Screen(ordered, folder, self.n_jobs)
        pool = Pool(self.task, self.context, self.n_jobs, threads, self.gpus, self.timeout_s, self.fail_fast)
        with hold(folder):
            by_index = {outcome.job.index: outcome for outcome in pool.run(ordered, screen)}
            outcomes = [by_index[job.index] for job in jobs]
            screen.summary(outcomes)
        if pool.stopped_by:
            raise StoppedBySignal(pool.stopped_by)
        return outcomes

    def _check(self, jobs: list[Job]) -> None:
        """Check all jobs before job 0; an error that several jobs share is reported once."""
        if not hasattr(self.task, "check"):
            return
        faults: dict[str, list[Job]] = {}
        for job in jobs:
            for error in job.with_hydra_config(lambda job=job: self.faults(job)):
                faults.setdefault(str(error), []).append(job)
        if faults:
            raise InvalidConfig(
                [ConfigError(_job_names(affected, len(jobs)) + text) for text, affected in faults.items()]
            )

    def faults(self, job: Job) -> list[ConfigError]:
        """Errors of one job's configuration, for a run on this machine with the GPUs of a job."""
        errors = self.task.check(job.task_cfg)
        share = None if self.gpus is None else len(self.gpus) // self.n_jobs
        if share is not None and "trainer" in job.config and local_devices(job.config.trainer) > share:
            errors.append(
                ConfigError(
                    f"trainer.devices={job.config.trainer.devices} must be at most {share}, the share that each of "
                    f"hydra.launcher.n_jobs={self.n_jobs} has of hydra.launcher.gpus={self.numbers}; use fewer jobs"
                )
            )
        if self.numbers and "trainer" in job.config and not job.config.get("dry_run"):
            there = gpu_count()
            if job.config.trainer.get("accelerator") != "cpu" and max(self.numbers) >= there:
                said = f"below {there}, the number of GPUs here" if there else "left out, because there is no GPU here"
                errors.append(MissingHere(f"hydra.launcher.gpus={self.numbers} must be {said}; use null"))
        return errors

    def _dry_run(self, jobs: list[Job], folder: Path, threads: int) -> list[JobReturn]:
        import torch

        from diffusion_lab.cli.dry_run import dry_run

        torch.set_num_threads(threads)  # nothing is forked any more
        answer = getattr(self.task, "answer", None) or dry_run
        try:
            jobs[0].with_hydra_config(lambda: answer([job.task_cfg for job in jobs], [job.folder for job in jobs]))
        finally:
            forget_sweep(folder, self._root)
        if self.searching:  # there is no value to go on with
            raise SystemExit(0)
        return [JobReturn(overrides=job.overrides, cfg=job.task_cfg, status=JobStatus.COMPLETED) for job in jobs]


def _start_single_threaded() -> int:
    """Import torch without its thread pool, which would not survive a fork; returns its default number of threads."""
    # GPUs must be counted without a context: a forked child could not create one after that.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with importing():
        import torch

    threads = _threads()
    torch.set_num_threads(1)
    return threads


@functools.cache
def _threads() -> int:
    """Torch's default number of threads here, as it was before the first launch of this process changed it."""
    import torch

    return torch.get_num_threads()


def _job_names(jobs: list[Job], total: int) -> str:
    if len(jobs) == total:
        return ""
    numbers = ", ".join(str(job.index) for job in jobs)
    return f"job{'s' if len(jobs) > 1 else ''} {numbers} ({' '.join(jobs[0].overrides)}): "


def _fail_without_value(outcomes: list[Outcome]) -> None:
    """Let jobs fail that have no finite value for the sweeper, which would take it for a fault of its own."""
    for outcome in outcomes:
        if outcome.status in GOOD and (outcome.value is None or not math.isfinite(outcome.value)):
            name = outcome.job.config.get("objective")
            outcome.reason = outcome.reason or f"{name}={outcome.value} must be a finite number for the sweeper"
            outcome.status = "failed"
            print(f"no value of {' '.join(outcome.job.overrides)}: {outcome.reason}", flush=True)


def job_return(outcome: Outcome) -> JobReturn:
    job = outcome.job
    returned = _Return(overrides=job.overrides, cfg=job.task_cfg, task_name="train", working_dir=os.getcwd())
    returned.hydra_cfg = job.config
    returned.started = outcome.status != "not started"
    if outcome.status in GOOD:
        returned.status, returned.return_value = JobStatus.COMPLETED, outcome.value
    else:
        returned.status, returned.return_value = JobStatus.FAILED, JobsFailed(outcome.reason)
    return returned


class _Return(JobReturn):
    """A JobReturn whose failure is raised without Hydra's message, because the launcher has reported it."""

    started = True  # False for a job that was to be started after another one had failed

    @property
    def return_value(self) -> object:
        if isinstance(self._return_value, JobsFailed):
            raise self._return_value
        return self._return_value

    @return_value.setter
    def return_value(self, value: object) -> None:
        self._return_value = value


def _named(gpus: list[int], n_jobs: int) -> list[str]:
    """The GPUs of these numbers as CUDA_VISIBLE_DEVICES names them.

    Raises:
        ConfigError: one is no number of a visible GPU, or is named twice.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = None if shown is None else [name.strip() for name in shown.split(",") if name.strip()]
    for gpu in gpus:
        if type(gpu) is not int or gpu < 0 or gpus.count(gpu) > 1 or (names is not None and gpu >= len(names)):
            below = "" if names is None else f" below {len(names)}, as CUDA_VISIBLE_DEVICES={shown} has that many"
            raise ConfigError(
                f"hydra.launcher.gpus={gpus} must be different integers >= 0{below}; use e.g. {[*range(n_jobs)]}"
            )
    return [str(gpu) if names is None else names[gpu] for gpu in gpus]
