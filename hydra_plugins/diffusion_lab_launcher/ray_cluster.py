"""The launcher for Ray: every job of a sweep is a Ray task, which runs the job as a command on a machine with room.

Like the local launcher, this one checks every job before the first starts, skips finished jobs, and lists all jobs in
sweep.json. A job gets the GPUs of its devices, which Ray names in CUDA_VISIBLE_DEVICES. The jobs of a machine that is
lost continue from their last checkpoints on others, so all machines must see the folder of the runs. When the launcher
is stopped, the jobs write a checkpoint and end; the same command continues them.

Differs from Hydra's own plugin (hydra-ray-launcher), which runs jobs inside of Ray's workers: there a job is not
checked before another has trained, one that starts processes itself has the wrong `sys.argv`, and none has a train.log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.processes import local_devices, on_cpu
from diffusion_lab.runs.record import as_error, write_failure
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._pool import Pool
from hydra_plugins.diffusion_lab_launcher._queue import QueueLauncher
from hydra_plugins.diffusion_lab_launcher._screen import Screen

CPUS = 4  # of a job
STOP_S = 60.0  # seconds that the jobs have for their checkpoints when the launcher is stopped


class RayLauncher(QueueLauncher):
    """Gives the unfinished jobs of a sweep to Ray and waits for them.

    Args:
        address: of a Ray cluster that runs, "auto" for the one that this machine belongs to; None starts one on this
            machine, which ends with the sweep.
        cpus: CPU cores, and threads, of a job, >= 1; None: 4, or all of a smaller machine.
        remote: other options of `ray.remote`, e.g. {"max_retries": 0, "resources": {"a100": 1}}.
        init: other options of `ray.init`, e.g. {"num_cpus": 2}.
        poll_s: polling interval in seconds.

    Raises:
        ConfigError: Ray is not installed, `cpus` is below 1, or a Ray that starts here has less than a job needs, which
            would wait for it forever.
    """

    def __init__(
        self,
        address: str | None = None,
        cpus: int | None = None,
        remote: Mapping[str, Any] | None = None,
        init: Mapping[str, Any] | None = None,
        poll_s: float = 1.0,
    ) -> None:
        super().__init__(poll_s)
        if find_spec("ray") is None:
            raise ConfigError("hydra/launcher=diffusion_lab_ray must have Ray; use pip install 'diffusion-lab[ray]'")
        if cpus is None:
            cpus = CPUS if address else min(CPUS, len(os.sched_getaffinity(0)))
        if isinstance(cpus, bool) or not isinstance(cpus, int) or cpus < 1:
            raise ConfigError(f"hydra.launcher.cpus={cpus} must be an integer >= 1; use 1")
        self.address, self.cpus = address, cpus
        self.remote, self.init = dict(remote or {}), dict(init or {})

    def faults(self, job: Job) -> list[ConfigError]:
        """Errors of one job's configuration; those of this machine only where the jobs run on it."""
        errors = self.task.check(job.task_cfg, here=self.address is None)
        if self.address and job.config.trainer.get("accelerator", "auto") == "auto":
            errors.append(
                ConfigError(
                    "trainer.accelerator=auto must be gpu or cpu with hydra.launcher.address, because the GPUs are "
                    "those of other machines; use trainer=gpu or trainer=cpu"
                )
            )
        nodes = job.config.trainer.get("num_nodes", 1)
        if nodes > 1:
            errors.append(
                ConfigError(f"trainer.num_nodes={nodes} must be 1 with hydra/launcher=diffusion_lab_ray; use 1")
            )
        return errors

    def submit(self, jobs: list[Job], folder: Path) -> list[RayTask]:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 without it, where any other program takes the cores
        local = {} if self.address else {"include_dashboard": False}
        options = {"log_to_driver": False, "logging_level": "ERROR", **local, **self.init}
        if not ray().is_initialized():  # by an earlier launch of this sweep
            ray().init(address=self.address or "local", **options)
        needs = [{"num_cpus": self.cpus, "num_gpus": gpus(job.config.trainer), **self.remote} for job in jobs]
        if not self.address:
            check_room(needs, ray().cluster_resources())
        run = ray().remote(run_as_command)
        arguments, here = getattr(self.task, "arguments", []), os.getcwd()
        return [
            RayTask(run.options(**own).remote(job, arguments, here, self.cpus))
            for job, own in zip(jobs, needs, strict=True)
        ]

    def outcome(self, job: Job, handle: RayTask) -> Outcome:
        try:
            outcome = ray().get(handle.reference)
        except ray().exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            if job.folder.is_dir():
                write_failure(job.folder, as_error(type(error).__name__, lines[0], str(error)))
            return Outcome(job, "failed", f"{type(error).__name__}: {lines[0]}")
        outcome.job = job  # Ray returns a copy
        return outcome

    def interrupted(self, handles: list[RayTask]) -> None:
        print(f"stopping {len(handles)} jobs, which write their checkpoints", flush=True)
        for handle in handles:
            ray().cancel(handle.reference)
        with suppress(ray().exceptions.RayError):
            ray().wait([handle.reference for handle in handles], num_returns=len(handles), timeout=STOP_S)


class RayTask:
    """A submitted job: Ray's reference to its outcome."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def done(self) -> bool:
        """Whether the outcome, or the reason why there is none, is here."""
        return bool(ray().wait([self.reference], timeout=0)[0])


def ray() -> Any:
    """Ray, which is imported when a sweep needs it."""
    return import_module("ray")


def gpus(trainer: DictConfig) -> int:
    """GPUs that a job needs."""
    return 0 if on_cpu(trainer) else local_devices(trainer)


def check_room(needs: list[dict[str, Any]], there: Mapping[str, float]) -> None:
    """
    Raises:
        ConfigError: a job needs more cores or GPUs than there are.
    """
    for key, name in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        most, have = max(own[key] for own in needs), there.get(name, 0)
        if most > have:
            words = "hydra.launcher.cpus" if name == "CPU" else "trainer.devices"
            raise ConfigError(f"{words}={most:g} must be at most {have:g}, the {name}s of this Ray; use fewer")


def run_as_command(job: Job, arguments: list[str], here: str, threads: int) -> Outcome:
    """Run a job as a command in folder `here`, in a process of Ray; a signal is forwarded to it, so that it writes a
    checkpoint. `arguments` are those of the sweep, for its --config-dir."""
    os.chdir(here)
    task: Any = SimpleNamespace(arguments=arguments)
    return Pool(task, None, 1, threads, None, None, False).run([job], _Silent([job], job.folder))[0]


class _Silent(Screen):
    """Shows nothing: the launcher has a screen."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, running: list[tuple[Job, float]]) -> None: ...

    def finished(self, outcome: Outcome) -> None: ...

    def stopping(self, number: int, running: int, first: bool) -> None: ...
