"""The sweeper: the jobs of a file, one line each, as a sweep that is no product of settings.

    schedule=linear method=p2 seed=0
    schedule=cosine method=learned_beta sampler.lr=0.001 seed=0

Words on the command line come before those of every line.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.files import read_text


class ListedSweeper(Sweeper):
    """Launches the jobs of a file.

    Args:
        file: one job on each line, as words of a shell; empty lines are left out.
        params: ignored; a preset may set it for the usual sweeper.

    Raises:
        ConfigError: the file cannot be read or has no job.
    """

    needs_values = False  # of the jobs

    def __init__(self, file: str | None, params: Any = None) -> None:
        try:
            lines = read_text(Path(str(file))).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"hydra.sweeper.file={file} must be a file with one job on each line ({error})"
            ) from error
        self.jobs = [shlex.split(line) for line in lines if line.strip()]
        if not self.jobs:
            raise ConfigError(f"hydra.sweeper.file={file} must have a job on some line, e.g. method=ddpm seed=0")

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all jobs at once.

        Raises:
            JobsFailed: some job is not done; the launcher has said which.
        """
        assert self.launcher is not None, "Hydra calls setup first"
        returned = self.launcher.launch([[*arguments, *job] for job in self.jobs], initial_job_idx=0)
        for job in returned:
            _ = job.return_value  # raises what the job raised
        return returned
