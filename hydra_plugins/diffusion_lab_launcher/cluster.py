"""The launcher for a cluster: every job of a sweep is a SLURM job with its own run folder, and continues after a
requeue.

submitit writes the batch scripts and requeues a job that is preempted or reaches its time limit. Like the local
launcher, this one checks every job before it submits the first, skips finished jobs, and lists all jobs in sweep.json.
Each SLURM task is a process of the run: as many on a node as the trainer has devices.

A job receives SIGUSR2 some time before its end, writes a checkpoint at the next step boundary, and is requeued
(`diffusion_lab.cli.commands.train.forward_signal`). It continues from its folder, which depends only on its
configuration.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.processes import local_devices, world_size
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._queue import QueueLauncher
from hydra_plugins.diffusion_lab_launcher._remote import Remote, outcome_of


class ClusterLauncher(QueueLauncher):
    """Submits the unfinished jobs of a sweep and waits for them; they continue when the launcher is stopped.

    Args:
        cluster: "slurm", or "local": submitit's executor for one machine, for tests.
        max_num_timeout: how often a job that reaches its time limit is requeued; a preempted one always is.
        parameters: of submitit's `AutoExecutor.update_parameters`; null leaves one out. gpus_per_node=auto: one for
            each device of a job, none with trainer=cpu.
        poll_s: polling interval in seconds.

    Raises:
        ConfigError: another cluster, no srun on this machine, or submitit is not installed.
    """

    def __init__(self, cluster: str, max_num_timeout: int, parameters: dict[str, Any], poll_s: float = 10.0) -> None:
        super().__init__(poll_s)
        if cluster not in ("slurm", "local"):
            raise ConfigError(f"hydra.launcher.cluster={cluster} must be slurm or local; use slurm")
        if find_spec("submitit") is None:
            raise ConfigError(
                "hydra/launcher=diffusion_lab_slurm must have submitit; use pip install 'diffusion-lab[slurm]'"
            )
        if cluster == "slurm" and shutil.which("srun") is None:
            raise ConfigError("hydra.launcher.cluster=slurm must have srun; use a machine of the cluster")
        self.cluster, self.max_num_timeout = cluster, max_num_timeout
        self.parameters = {key: value for key, value in parameters.items() if value is not None}

    def faults(self, job: Job) -> list[ConfigError]:
        """Errors of one job's configuration that do not depend on the machine of the job."""
        errors = self.task.check(job.task_cfg, here=False)
        if self.cluster == "local" and world_size(job.config) > 1:
            devices = job.config.trainer.devices
            errors.append(ConfigError(f"trainer.devices={devices} must be 1 with hydra.launcher.cluster=local; use 1"))
        devices = job.config.trainer.get("devices")
        if self.parameters.get("gpus_per_node") == "auto" and str(devices) in ("auto", "-1"):
            errors.append(
                ConfigError(
                    f"trainer.devices={devices} must be a number in a job of a cluster, whose machines are not known "
                    "here; use e.g. trainer.devices=1"
                )
            )
        return errors

    def outcome(self, job: Job, handle: Any) -> Outcome:
        return outcome_of(job, handle)

    def interrupted(self, handles: list[Any]) -> None:
        print(f"{len(handles)} jobs stay in the queue; `scancel` removes them", flush=True)

    def asked(self, jobs: list[Job]) -> dict[str, Any]:
        """The parameters, which all jobs of an array share."""
        if self.parameters.get("gpus_per_node") != "auto":
            return self.parameters
        return self.parameters | {"gpus_per_node": max(_gpus(job.config.trainer) for job in jobs)}

    def submit(self, jobs: list[Job], folder: Path) -> list[Any]:
        """submitit's handles of the jobs, which are one SLURM array."""
        import submitit

        timeouts = {f"{self.cluster}_max_num_timeout": self.max_num_timeout}
        executor = submitit.AutoExecutor(folder=folder / ".submitit" / "%j", cluster=self.cluster, **timeouts)
        executor.update_parameters(**self.asked(jobs))
        handles = executor.map_array(Remote(self.task, self.context), jobs)
        print(f"submitted as {', '.join(str(handle.job_id) for handle in handles)}", flush=True)
        return handles


def _gpus(trainer: DictConfig) -> int:
    """GPUs that a job asks for; whether the machine that submits it has some says nothing."""
    return 0 if trainer.get("accelerator") == "cpu" else local_devices(trainer)
