"""A job of a sweep: its configuration, its folder and its result.json."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import filter_overrides
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.question import question_of, words
from diffusion_lab.runs.record import is_done, is_pruned, read_result, write_sweep

T = TypeVar("T")


@dataclass
class Job:
    """One job: `index` in the sweep, `config` with Hydra's node, `overrides` without Hydra's own settings."""

    index: int
    overrides: list[str]
    config: DictConfig
    folder: Path

    @property
    def name(self) -> str:
        """The folder's name without the hash."""
        return self.folder.name.rpartition("-")[0] or self.folder.name

    @cached_property
    def task_cfg(self) -> DictConfig:
        """The configuration that the task receives, copied once: a sweep asks for it several times."""
        cfg = OmegaConf.masked_copy(self.config, [str(key) for key in self.config if key != "hydra"])
        OmegaConf.set_struct(cfg, True)
        return cfg

    def with_hydra_config(self, call: Callable[[], T]) -> T:
        """Call with Hydra's global configuration set to this job's."""
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(self.config)
        try:
            return call()
        finally:
            HydraConfig.instance().cfg = before

    def metrics(self) -> dict[str, float | None]:
        """The newest value of each metric, None if it is not finite; {} without one."""
        metrics = read_result(self.folder).get("metrics")
        return metrics if isinstance(metrics, dict) else {}

    def is_done(self) -> bool:
        """Whether this job is finished, with at least the number of steps of the current configuration."""
        return is_done(read_result(self.folder), self.config.get("max_steps", 0))

    def needs_nothing(self) -> bool:
        """Whether it is done and is not to be trained again, as by `anew=true`."""
        return self.is_done() and not self.config.get("anew")

    def is_pruned(self) -> bool:
        """Whether this job was ended early, because most jobs of its sweep were better."""
        return is_pruned(read_result(self.folder))


@dataclass
class Outcome:
    """The outcome of a job: status done, skipped (done before), pruned (ended early), failed, killed, timeout,
    interrupted, locked (in use by another process) or not started; the reason in words; seconds in this sweep; the
    value for a sweeper."""

    job: Job
    status: str
    reason: str = ""
    seconds: float = 0.0
    value: float | None = None


def compose_job(context: HydraContext, master: DictConfig, overrides: list[str], index: int) -> Job:
    """The configuration of one job, in RUN mode and with its folder as the run folder."""
    config = context.config_loader.load_sweep_config(master, overrides)
    with read_write(config), open_dict(config):
        config.hydra.job.id, config.hydra.job.num = str(index), index
        folder = Path(str(master.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
        config.hydra.mode = RunMode.RUN
        config.hydra.run.dir = str(folder)
        config.hydra.runtime.output_dir = str(folder.absolute())
        config.hydra.job_logging.root.handlers = ["console"]  # standard output is train.log already
    return Job(index, list(filter_overrides(overrides)), config, folder)


def in_turns(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the seed in the outer loop, whatever the order of the words of the command: all methods of the
    first seed, then all of the next one. What changes on the machine over the hours of a sweep then meets all methods
    alike, and a sweep that is stopped has all methods with fewer seeds. Seeds, and the jobs of each, keep their order.
    """
    seeds = list(dict.fromkeys(str(job.config.get("seed")) for job in jobs))
    return sorted(jobs, key=lambda job: seeds.index(str(job.config.get("seed"))))


def name_jobs(folder: Path, typed: list[str], jobs: list[Job]) -> None:
    """Write sweep.json: the command, all jobs of this folder, also of earlier commands, and the question of the first,
    for the report. A command that asks another one is told so."""
    new = [{"dir": job.folder.name, "overrides": job.overrides, "config_hash": config_hash(job.config)} for job in jobs]
    asked = None
    if jobs and "question" in jobs[0].config:  # with the folders of --config-dir, where metrics of the user's own are
        asked = jobs[0].with_hydra_config(lambda: question_of([job.task_cfg for job in jobs]))
    stated = write_sweep(folder, shlex.join(["diffusion-lab", *typed]), new, asked)
    if not asked or not stated:
        return
    default = {key for key, typed in jobs[0].task_cfg.question.items() if typed is None}  # not stated by this command
    if any(asked[key] != stated.get(key) for key in asked.keys() - default):
        print(f"question: {words(asked)}; {folder} keeps the first: {json.dumps(stated)}")
