"""Checks of the top-level settings of train.yaml: types and ranges, unknown names, missing parts, and keys of parts
that repeat a setting."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.setting import Setting, as_text, faults_of
from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from diffusion_lab.cli.config import hydra_of
from diffusion_lab.cli.cost.devices import GPUS
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.options.defaults import defaults
from diffusion_lab.intervals import ESTIMANDS, RACE_ALPHAS, STOPPINGS
from diffusion_lab.runs.names import CHECKPOINTS

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")  # weights, averages and tables are float32 in all of them
LONGEST = 10**12  # optimizer steps
PRESETS = ("base", "method", "experiment", "scale", "debug")
# key of a part -> the setting to type
REPEATED = {
    "trainer.max_steps": "max_steps",
    "trainer.precision": "precision",
    "trainer.accumulate_grad_batches": "accumulate",
    "trainer.gradient_clip_val": "gradient_clip",
    "dataset.batch_size": "batch_size",
    "dataset.accumulate": "accumulate",
    "trainer.default_root_dir": "paths.run_dir",
    "callbacks.generation.directory": "paths.run_dir",
    "callbacks.progress.directory": "paths.run_dir",
    "callbacks.checkpoint.directory": "paths.run_dir",
}
FOLDER = "paths.run_dir"
BELOW = {"callbacks.checkpoint.directory": f"/{CHECKPOINTS}"}  # where a continued run reads them
# Arguments of Lightning's trainer that a run passes, with what chooses them instead.
PASSED = {
    "callbacks": "add callbacks with +callbacks.NAME._target_=...",
    "logger": "choose loggers with logger=...",
    "plugins": "those of precision and of SLURM follow from precision=... and from srun",
}
# Lightning's other ways to end a run before its last step, with the values that turn them off.
ENDS = {"max_epochs": (-1, None), "max_time": (None,), "limit_train_batches": (None, 1.0), "fast_dev_run": (False,)}
ENDS |= {"overfit_batches": (0.0,)}
SETTINGS = {
    "seed": Setting(int, "use e.g. seed=0", least=0),
    **{
        f"stream_seeds.{stream}": Setting(int, "use null for that of the run", least=0, null=True)
        for stream in ("init", "timesteps", "noise", "dropout")
    },
    "max_steps": Setting(int, "use 2000", least=0, most=LONGEST),
    "batch_size": Setting(int, "use 64", least=1),
    "images_per_device": Setting(int, "use a divisor of batch_size, or null", least=1, null=True),
    "accumulate": Setting(int, "use 1", least=1),
    "precision": Setting(str, "use 32-true", among=PRECISIONS),
    "channels_last": Setting(bool, "use null for what is faster", null=True),
    "compile": Setting(bool, "use compile=false"),
    "gradient_clip": Setting(float, "use 1.0, or null for no clipping", least=0, open=True, null=True),
    "log_every": Setting(int, "use 50", least=1),
    "snapshot_every": Setting(int, "use 500, or 0 for none", least=0),
    "metrics_every": Setting(int, "use 2000, or 0 for metrics at every evaluation", least=0),
    "checkpoint_every": Setting(int, "use 500, or 0 for one at the end", least=0),
    "keep_every": Setting(int, "use a multiple of checkpoint_every, or 0 for none", least=0),
    "name": Setting(
        str,
        "use null to name the sweep by its experiment or data set, and paths.root for another place",
        null=True,
        pattern=r"[^/\\.][^/\\]*",
        form="the name of one folder, which does not start with a dot",
    ),
    "resume": Setting(str, "give a run folder", null=True),
    "anew": Setting(bool, "use anew=false to go on with what the folder holds"),
    "hang_timeout_min": Setting(float, "use 5", least=0, open=True),
    "objective": Setting(str, "give a metric, e.g. metrics/fd1k_digits", null=True),
    "question.metric": Setting(str, "give one of metrics.names, e.g. question.metric=fid", null=True),
    "question.estimand": Setting(str, "use question.estimand=end", among=tuple(ESTIMANDS)),
    "question.margin": Setting(float, "use question.margin=1.1", least=1, open=True),
    "question.stopping": Setting(str, "use question.stopping=fixed", among=STOPPINGS),
    "question.seeds": Setting(int, "use null for the number of seeds of the sweep", least=1, null=True),
    "question.alpha": Setting(float, "use question.alpha=0.05", least=RACE_ALPHAS[0], most=RACE_ALPHAS[1]),
    "threads": Setting(int, "use null for one per core", least=1, null=True),
    "dry_run": Setting(bool, "use dry_run=true"),
    "cost.device": Setting(str, "use cost.device=A100", among=tuple(GPUS)),
    "cost.utilization": Setting(float, "use cost.utilization=0.3", least=0, open=True),
    "paths.root": Setting(str, "use paths.root=runs"),
}


@functools.cache
def _shipped(command: str = "train") -> tuple[dict[str, Any], dict[str, str | None]]:
    """The plain keys of the command's file in conf/, and its groups with their defaults."""
    path = conf_dir() / f"{command}.yaml"
    plain = {str(key): value for key, value in yaml_file(path).items() if key != "defaults"}
    return plain, {entry.group: entry.option or None for entry in defaults(path) if not entry.overrides}


@functools.cache
def part_groups() -> dict[str, str | None]:
    """Groups of parts with their defaults; one whose default is null may be left out."""
    return {group: default for group, default in _shipped()[1].items() if group not in PRESETS}


def unknown_settings(command: str, names: Iterable[str]) -> list[str]:
    """A message for each top-level name that the command does not have; a word with + may add any."""
    plain, groups = _shipped(command)
    known = [*plain, *groups]
    lists = f"`diffusion-lab {command} --help` lists them"
    return [f"{name}: there is no setting {name}{nearest(name, known)}; {lists}" for name in names if name not in known]


def check_settings(cfg: DictConfig) -> list[ConfigError]:
    """Errors for unknown names, missing parts and settings, and values that are out of range or contradictory."""
    plain, errors = _shipped()[0], unknown_settings("train", map(str, cfg))
    for group in ("paths", "cost", "question", "stream_seeds"):
        for key in cfg[group] if isinstance(cfg.get(group), DictConfig) else ():
            if key not in plain[group]:
                hint = nearest(str(key), plain[group])
                errors.append(f"{group}.{key}: there is no setting {group}.{key}{hint}")
    if cfg.get("max_steps") == 0 and cfg.get("init_from") is None:
        errors.append("max_steps=0 must be an integer >= 1; use 2000")
    errors += [*_contradictions(cfg), *_elsewhere(cfg), *_early_ends(cfg), *_passed_by_the_run(cfg)]
    return [*map(ConfigError, errors), *faults_of(cfg, SETTINGS)]


def _contradictions(cfg: DictConfig) -> Iterator[str]:
    """Keys of parts that repeat a setting of the run must have its value, or the run would differ from its record."""
    for key, setting in REPEATED.items():
        parent, _, name = key.rpartition(".")
        try:
            node, wanted = OmegaConf.select(cfg, parent), OmegaConf.select(cfg, setting)
            value = OmegaConf.select(cfg, key)
        except OmegaConfBaseException:  # a reference that does not resolve, which check_nodes reports
            continue
        wanted = f"{wanted}{BELOW[key]}" if key in BELOW else wanted
        if isinstance(node, DictConfig) and name not in node:
            yield f"~{key} must not be deleted, because {setting}={as_text(wanted)} reaches the run there; leave it out"
        elif OmegaConf.is_config(value):  # which others report
            continue
        elif isinstance(node, DictConfig) and value != wanted:
            own = "the run's own folder" if setting == FOLDER else f"{as_text(wanted)}, as {setting} is"
            cure = "set paths.root for another place" if setting == FOLDER else f"set {setting}"
            yield f"{key}={as_text(value)} must be {own}; leave it out, and {cure}"


def _elsewhere(cfg: DictConfig) -> Iterator[str]:
    """A callback or a logger of this package writes into the folder that all commands read, or below it."""
    for family in ("callbacks", "logger"):
        node = OmegaConf.to_container(cfg[family]) if isinstance(cfg.get(family), DictConfig) else {}
        for name, part in cast(dict[str, Any], node).items():
            key = f"{family}.{name}.directory"
            own = isinstance(part, dict) and str(part.get("_target_")).startswith("diffusion_lab.")
            if not own or "directory" not in part or key in REPEATED:
                continue
            try:
                value, folder = OmegaConf.select(cfg, key), OmegaConf.select(cfg, FOLDER)
            except OmegaConfBaseException:
                continue
            if isinstance(value, str) and not Path(os.path.abspath(value)).is_relative_to(os.path.abspath(folder)):
                cure = f"use ${{{FOLDER}}}, and paths.root for another place"
                yield f"{key}={as_text(value)} must be the run's own folder, or lie in it; {cure}"


def _passed_by_the_run(cfg: DictConfig) -> Iterator[str]:
    trainer = cfg.get("trainer")
    for name, cure in PASSED.items():
        if isinstance(trainer, DictConfig) and name in trainer:
            yield f"trainer.{name} must be left out, because the run passes its own; {cure}"
    hydra = hydra_of(cfg)
    typed = OmegaConf.select(hydra, "overrides.task") if hydra is not None else None
    for word in typed or ():
        if word.lstrip("+").startswith(f"{FOLDER}="):
            yield f"{word} must be left out, because {FOLDER} is Hydra's folder of the run; use hydra.run.dir=..."


def _early_ends(cfg: DictConfig) -> Iterator[str]:
    trainer = cfg.get("trainer")
    for name, off in ENDS.items():
        if isinstance(trainer, DictConfig) and name in trainer and trainer[name] not in off:
            yield (
                f"trainer.{name}={as_text(trainer[name])} must be {as_text(off[0])}, because a run ends at max_steps; "
                "leave it out, and set max_steps"
            )
