"""The sweeper of a crossed study: the union of several products of settings, each job once (`cli/sweep_jobs.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.sweep_jobs import jobs_of


class ProductsSweeper(Sweeper):
    """Launches the jobs of several products.

    Args:
        products: of each product, key -> values with commas between them.
        params: likewise, joined with every product as its outermost keys, so that a sweep that is stopped has all cells
            with fewer seeds.

    Raises:
        ConfigError: a product is no mapping, or no job is left.
    """

    needs_values = False  # of the jobs

    def __init__(self, products: Sequence[Mapping[str, Any]], params: Mapping[str, Any] | None = None) -> None:
        wrong = [one for one in products or () if not isinstance(one, Mapping)]
        if wrong:
            raise ConfigError(
                f"hydra.sweeper.products must be a list of mappings, and has {wrong[0]}; use e.g. "
                "[{sampler: 'uniform,speed', seed: '0,1'}]"
            )
        self.products, self.params = products or [], params

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.loader, self.config = hydra_context.config_loader, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all jobs at once.

        Raises:
            JobsFailed: some job is not done; the launcher has said which.
        """
        assert self.launcher is not None, "Hydra calls setup first"
        returned = self.launcher.launch(self.words(arguments), initial_job_idx=0)
        for job in returned:
            _ = job.return_value  # raises what the job raised
        return returned

    def words(self, arguments: list[str]) -> list[list[str]]:
        """The words of each job."""
        jobs = list(jobs_of(self.products, self.params, arguments, self.loader))
        if not jobs:
            raise ConfigError(
                f"{' '.join(arguments) or 'hydra.sweeper.products=[]'} must leave a job of the sweep; see its products"
            )
        return jobs
