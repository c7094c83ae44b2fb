"""A job of a sweep: its configuration, its folder, and what its result.json says."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import filter_overrides
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from diffusion_lab.cli.config import config_hash
from diffusion_lab.files import read_object, write_json

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

    @property
    def task_cfg(self) -> DictConfig:
        """The configuration as the task gets it."""
        cfg = OmegaConf.masked_copy(self.config, [str(key) for key in self.config if key != "hydra"])
        OmegaConf.set_struct(cfg, True)
        return cfg

    def with_hydra_config(self, call: Callable[[], T]) -> T:
        """Call with Hydra's global configuration set to this job's, as a job finds it."""
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(self.config)
        try:
            return call()
        finally:
            HydraConfig.instance().cfg = before

    def result(self) -> dict[str, Any]:
        """result.json, empty when there is none or it is damaged."""
        return read_object(self.folder / "result.json") or {}

    def metrics(self) -> dict[str, float]:
        """The newest value of each metric, {} before there is one."""
        metrics = self.result().get("metrics")
        return metrics if isinstance(metrics, dict) else {}

    def is_done(self) -> bool:
        """Whether this job was finished, with at least the steps that are asked for now."""
        result = self.result()
        step = result.get("step")
        return result.get("status") == "done" and isinstance(step, int) and step >= self.config.get("max_steps", 0)

    def record_failure(self, kind: str, message: str, trace: str = "") -> None:
        """Write result.json for a job that could not do so itself; a new run of the job replaces it."""
        old = self.result()
        content = {
            "status": "failed",
            "step": old.get("step", 0),
            "metrics": old.get("metrics", {}),
            "evaluations": old.get("evaluations", []),
            "error": {"type": kind, "message": message, "traceback": trace},
            "seconds": old.get("seconds"),
            "images_per_second": old.get("images_per_second"),
        }
        with suppress(OSError):  # the disk may be full, which may be why the job failed
            write_json(self.folder / "result.json", content)


def compose_job(context: HydraContext, master: DictConfig, overrides: list[str], index: int) -> Job:
    """The configuration of one job, in RUN mode and with its own folder as the run folder."""
    config = context.config_loader.load_sweep_config(master, overrides)
    folder = Path(str(master.hydra.sweep.dir)) / str(_subdir(config, index))
    with read_write(config), open_dict(config):
        config.hydra.mode = RunMode.RUN
        config.hydra.job.id, config.hydra.job.num = str(index), index
        config.hydra.run.dir = str(folder)
        config.hydra.runtime.output_dir = str(folder.absolute())
        config.hydra.job_logging.root.handlers = ["console"]  # standard output is train.log already
    return Job(index, list(filter_overrides(overrides)), config, folder)


def _subdir(config: DictConfig, index: int) -> str:
    with read_write(config), open_dict(config):
        config.hydra.job.id, config.hydra.job.num = str(index), index
    return str(config.hydra.sweep.subdir)


def write_sweep(folder: Path, typed: list[str], jobs: list[Job]) -> None:
    """sweep.json: the command and all jobs that this folder was ever asked for, so that a report can name them."""
    command = shlex.join(["diffusion-lab", *typed])
    old = read_object(folder / "sweep.json") or {}
    new = [{"dir": job.folder.name, "overrides": job.overrides, "config_hash": config_hash(job.config)} for job in jobs]
    names = {entry["dir"] for entry in new}
    content = {
        "name": folder.name,
        "command": command,
        "commands": list(dict.fromkeys([*map(str, _list(old, "commands")), command])),
        "jobs": [e for e in _list(old, "jobs") if isinstance(e, dict) and e.get("dir") not in names] + new,
    }
    write_json(folder / "sweep.json", content)


def _list(content: dict[str, Any], key: str) -> list[Any]:
    """A list of what was read back, [] if it is none: a damaged file must not stop a sweep."""
    found = content.get(key)
    return found if isinstance(found, list) else []
