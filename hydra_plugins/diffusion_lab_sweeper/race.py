"""The sweeper of a race: seeds in blocks, and a method that has lost gets no more of them (`diffusion_lab/racing.py`).

The jobs are those of a sweep over methods and seeds. All methods get the first two seeds, then those that are still in
the race the third, and so on, until one is left or there are no more seeds. What is decided after a block is a function
of the values of its runs, and the launcher skips runs that are done, so the same command goes on after any end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from diffusion_lab.arguments import is_number
from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.sweep_jobs import jobs_of
from diffusion_lab.intervals import RACE_ALPHAS
from hydra_plugins.diffusion_lab_sweeper.products import ProductsSweeper

if TYPE_CHECKING:  # NumPy is not imported for every command, and Hydra imports every plugin
    from diffusion_lab.cli.race_page import Field

FIRST = 2  # seeds before the first look, as in `diffusion_lab.racing`


class RaceSweeper(ProductsSweeper):
    """Runs a race. The values of its jobs are those of their runs.

    Args:
        margin: ratio > 1; a method that is not better than another one by more is set aside. None: only methods that
            are worse leave.
        alpha: error, in the whole race, of calling a method worse, 0.02 to 0.2; the intervals' level is 1 - alpha.
        hours: of training, over all jobs; a block that would take more is not begun.
        params: as of Hydra's own sweeper.
        products: as of `hydra/sweeper=products`.

    Raises:
        ConfigError: margin, alpha or hours is out of range, or there are not two methods and two seeds.
    """

    def __init__(
        self,
        margin: float | None = 1.1,
        alpha: float = 0.05,
        hours: float | None = None,
        params: Any = None,
        products: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if margin is not None and not (is_number(margin) and margin > 1):
            raise ConfigError(f"hydra.sweeper.margin={margin} must be a number > 1, or null; use margin=1.1")
        least, most = RACE_ALPHAS
        if not (is_number(alpha) and least <= alpha <= most):
            raise ConfigError(f"hydra.sweeper.alpha={alpha} must be a number from {least} to {most}; use alpha=0.05")
        if hours is not None and not (is_number(hours) and hours > 0):
            raise ConfigError(f"hydra.sweeper.hours={hours} must be a number > 0, or null; use hours=6")
        self.margin, self.alpha, self.hours, self.products, self.params = margin, alpha, hours, products, params

    def sweep(self, arguments: list[str]) -> Any:
        """Run the race.

        Raises:
            JobsFailed: some job is not done; the launcher has said which.
        """
        from diffusion_lab.cli.race_page import Field

        assert self.config is not None and self.launcher is not None, "Hydra calls setup first"
        rows, seeds = methods_and_seeds(self._jobs(arguments))
        field = Field(Path(str(self.config.hydra.sweep.dir)), rows, seeds, self.margin, self.alpha)
        self._check_question(field)
        returned: dict[tuple[int, int], JobReturn] = {}
        left, count = list(range(len(rows))), FIRST
        while True:
            block = [(row, seed) for seed in seeds[:count] for row in left if (row, seed) not in returned]
            own = [f"question.seeds={len(seeds)}", "question.stopping=race", f"question.alpha={self.alpha}"]
            words = [[*rows[row], f"seed={seed}", *own] for row, seed in block]
            ended = self.launcher.launch(words, initial_job_idx=len(returned))
            returned |= zip(block, ended, strict=True)
            failed = any(job.status == JobStatus.FAILED for job in ended) and getattr(self.launcher, "fail_fast", False)
            if failed or not all(getattr(job, "started", True) for job in ended):
                break  # and those that were not started have lost nothing
            if (ended[0].cfg or {}).get("dry_run"):
                print("the first block of the race; a method that stays in it gets a run more in each further one")
                return ended
            left, over, seconds = self._look(field, returned)
            # Whom a failed one beat.
            behind = any((row, seed) not in returned for row in left for seed in seeds[:count])
            if over and not behind:
                break
            if (words_left := self._over(seconds, len(returned), len(left))) is not None:
                print(words_left)
                break
            count += not behind
        for job in returned.values():
            _ = job.return_value  # raises what the job raised
        return list(returned.values())

    def _jobs(self, arguments: list[str]) -> list[list[str]]:
        """The jobs of the sweep, as lists of words."""
        if self.products:
            return list(jobs_of(self.products, self.params, arguments, self.loader))
        parser = OverridesParser.create(config_loader=self.loader)
        params = [f"{key}={values}" for key, values in (self.params or {}).items()]
        overrides = parser.parse_overrides([*params, *arguments])
        return [list(job) for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]

    def _check_question(self, field: Field) -> None:
        """Raise ConfigError, before anything is trained, if the race cannot be decided by what its runs measure, or the
        folder holds a race that began with another question, number of seeds or error."""
        from diffusion_lab.cli.question import deciding
        from diffusion_lab.cli.race_page import check_folder

        assert self.config is not None
        words = [*field.rows[0], f"seed={field.seeds[0]}"]
        cfg = self.loader.load_sweep_config(self.config, words)
        if not OmegaConf.select(cfg, "metrics.names"):
            raise ConfigError("metrics.names=[] must have a metric, by which a race decides; use metrics=default")
        with config_errors("metrics"):
            found = deciding(cfg)
        wanted = cfg.question.metric or cfg.metrics.names
        if found is None or found[0].compared_by != "ratio" or found[0].better == "neither":
            raise ConfigError(f"question.metric={wanted} must be a metric that is compared by ratios; use fid")
        check_folder(field, found[1])

    def _look(
        self, field: Field, returned: Mapping[tuple[int, int], JobReturn]
    ) -> tuple[list[int], bool, float | None]:
        """Print and write where the methods stand; those in the race, whether it has ended, mean seconds of a run."""
        from diffusion_lab.cli.race_page import has_ended, page, question_of_race, values_of, where_they_stand, write

        question = question_of_race(field.folder)
        places = {key: Path(str(job.hydra_cfg.hydra.run.dir)) for key, job in returned.items() if job.hydra_cfg}
        runs = {key: place for key, place in places.items() if returned[key].status == JobStatus.COMPLETED}
        values = values_of(field, runs, question)
        for row, seed in returned.keys() - runs.keys():
            values.failed[row] = min(seed, values.failed.get(row, seed))
        lines = page(field, values, question)
        print("\n" + "\n".join(lines[2:]), flush=True)
        print(f"written to {write(field, lines)}\n", flush=True)
        found = where_they_stand(field, values)
        left = [i for i, one in enumerate(found) if one is not None and one.word == "in"]
        return left, has_ended(field, values), values.seconds

    def _over(self, seconds: float | None, runs: int, left: int) -> str | None:
        """Why no further block is begun; None if it may be."""
        if self.hours is None or seconds is None or (runs + left) * seconds <= 3600 * self.hours:
            return None
        from diffusion_lab.progress import duration

        spent, more = duration(runs * seconds), duration(left * seconds)
        return (
            f"hydra.sweeper.hours={self.hours:g}: {spent} are spent and the next block would take {more}; it ends here"
        )


def methods_and_seeds(jobs: Sequence[Sequence[str]]) -> tuple[list[tuple[str, ...]], list[int]]:
    """The words of each method and all seeds, in the order of the jobs.

    Raises:
        ConfigError: there are not two methods and two seeds, or not each seed of each method.
    """
    seeds_of: dict[tuple[str, ...], list[str]] = {}
    for job in jobs:
        own = [word.partition("=")[2] for word in job if word.startswith("seed=")]
        seeds_of.setdefault(tuple(word for word in job if not word.startswith("seed=")), []).extend(own)
    typed = next(iter(seeds_of.values()), [])
    if any(not seed.isdigit() for seed in typed):
        raise ConfigError(f"seed={','.join(typed)} must be integers >= 0; use seed=0..9 or seed=0,1,2")
    seeds = [int(seed) for seed in typed]
    if len(seeds_of) < 2:
        raise ConfigError(
            "race must have two methods or more, e.g. sampler=uniform,logit_normal; add a setting's values"
        )
    if len(seeds) < FIRST or len({*seeds}) < len(seeds) or any(own != typed for own in seeds_of.values()):
        raise ConfigError(
            f"seed={','.join(typed)} must be two seeds or more, each once and for all methods, each of which is named "
            "once; use seed=0..9"
        )
    return list(seeds_of), seeds
