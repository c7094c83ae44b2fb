"""What a dashboard is of: the runs of a paper's tables, selected by tag, or those in a folder, selected by group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.cli.compose_errors import explained
from diffusion_lab.cli.config import choices_of, sweep_name_of
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.table_files import conf_folders, load_scale, load_table, table_names
from diffusion_lab.cli.table_jobs import Job, Jobs
from diffusion_lab.cli.untrusted_run import rerun_overrides
from diffusion_lab.dashboards import LoggedKeys, RunSelection, expected, logged_by
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.identity import words_for_latents
from diffusion_lab.runs.run import Run
from diffusion_lab.runs.signature import config_dirs_of
from diffusion_lab.runs.wandb_names import PROJECT, check_name, check_project
from diffusion_lab.tables import TableScale


class DashboardSource(NamedTuple):
    """The runs of a dashboard.

    Attributes:
        name: name of the dashboard.
        project: W&B project of the runs.
        selection: how W&B selects them.
        logged: what they log.
        jobs: their settings, as words of `diffusion-lab train`, by name of the table or "" without one.
        out: folder for the files.
        mirrored: how many of the runs were logged to W&B; None if there are no runs yet.
        config_dirs: of the runs that are the user's own; those of others give the agent no options.
    """

    name: str
    project: str
    selection: RunSelection
    logged: LoggedKeys
    jobs: Mapping[str, Sequence[Sequence[str]]]
    out: Path
    mirrored: int | None = None
    config_dirs: Sequence[str] = ()


def papers() -> list[str]:
    """The folders of tables in conf/table."""
    return sorted({name.partition("/")[0] for name in table_names(conf_folders(None))})


def source_of(target: str, words: Sequence[str], seeds: Sequence[int]) -> DashboardSource:
    """The source that the command names.

    Args:
        target: a paper or a folder of runs.
        words: the scale of a paper's tables, e.g. scale=mini, and further settings of all runs.
        seeds: seeds of a paper's runs; empty: the scale's.

    Raises:
        ValueError: it is neither, it has no run, or the settings cannot be composed.
    """
    if target in papers():
        return _of_paper(target, words, seeds)
    if not os.path.isdir(target):
        raise ValueError(
            f"dashboard={target} must be a paper ({', '.join(papers())}) or a folder of runs{nearest(target, papers())}"
        )
    if further := [*words, *(["--seeds"] if seeds else [])]:
        raise ValueError(f"{further[0]} must be left out for a folder of runs, which have their settings; remove it")
    return _of_folder(Path(target))


def _of_paper(paper: str, words: Sequence[str], seeds: Sequence[int]) -> DashboardSource:
    if strange := [word for word in words if "=" not in word]:
        raise ConfigError(f"{strange[0]} must be key=value, a scale or a setting of every run; use e.g. scale=mini")
    given = dict(word.split("=", 1) for word in words)
    scale = load_scale(given.pop("scale", "paper"), conf_folders(None))
    further = [f"{key}={value}" for key, value in given.items()]
    jobs: dict[str, Sequence[Sequence[str]]] = {}
    configs: dict[str, Any] = {}
    for name in table_names(conf_folders(None)):
        if name.startswith(f"{paper}/"):
            found = _jobs(name, scale, further, seeds or scale.seeds)
            jobs[name.partition("/")[2]] = [job.words for job in found]
            configs |= {" ".join(job.words[:-1]): job.config for job in found}  # without its seed
    better: dict[str, str] = {}
    for config in {f"{config.dataset} {config.metrics} {config.task}": config for config in configs.values()}.values():
        better |= _metrics(config)
    clipped = any(config.get("gradient_clip") for config in configs.values())
    adversarial = any(config.callbacks.get("adversarial_log") for config in configs.values())
    data = {str(choices_of(config).get("dataset")) for config in configs.values()}
    selection = RunSelection(tags=(f"paper:{paper}", *(f"dataset:{one}" for one in data if len(data) == 1)))
    logged = expected(better, bool(clipped), bool(adversarial))
    return DashboardSource(" ".join([paper, *words]), PROJECT, selection, logged, jobs, Path("dashboards") / paper)


def _jobs(name: str, scale: TableScale, further: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """The jobs of a table without those that start from other runs, whose folders are not known yet."""
    table = load_table(name, conf_folders(None))
    rows = [row for row in table.rows if scale.name not in row.absent and not row.start]
    with explained(further):
        return list(Jobs(table, scale, further).of(rows, seeds, {}))


def _metrics(cfg: Any) -> dict[str, str]:
    """The metrics that a run of this configuration logs, with their directions; needs no data."""
    from diffusion_lab.cli.metric_files import with_metrics
    from diffusion_lab.cli.run_parts import RunParts

    parts = RunParts(with_metrics(cfg))
    return parts["metrics"].directions(parts["dataset"])


def _of_folder(path: Path) -> DashboardSource:
    runs = [run for run in read_runs(path).runs if run.step > 0]
    if not runs:
        raise ValueError(f"dashboard={path} must hold a run that has begun to train; start one or give another folder")
    project, groups = wandb_places(path, runs)
    jobs = {"": [_recorded(run) for run in runs]}
    mirrored = sum(bool(_wandb(run)) for run in runs)
    name = path.resolve().name
    own = list(dict.fromkeys(folder for run in runs for folder in config_dirs_of(run.info)))
    return DashboardSource(
        name, project, RunSelection(groups=groups), logged_by(runs), jobs, path / "dashboard", mirrored, own
    )


def wandb_places(path: Path, runs: Sequence[Run]) -> tuple[str, tuple[str, ...]]:
    """The W&B project of the runs of a folder, and their groups; ValueError for several projects, or a name that W&B
    does not accept."""
    for run in runs:  # a record may come from anybody, and these names go into W&B
        for key, check in {"project": check_project, "group": check_name}.items():
            if key in _wandb(run):
                check(f"{run.folder}: logger.wandb.{key}", _wandb(run)[key])
    groups = tuple(dict.fromkeys(_wandb(run).get("group") or sweep_name_of(run.config, run.choices) for run in runs))
    projects = list(dict.fromkeys(_wandb(run)["project"] for run in runs if "project" in _wandb(run)))
    if len(projects) > 1:
        raise ValueError(f"folder={path} must hold runs of one W&B project, not of {', '.join(projects)}; choose one")
    return (projects[0] if projects else PROJECT), groups


def _recorded(run: Run) -> list[str]:
    """The settings of a run."""
    seed = [] if any(word.startswith("seed=") for word in run.overrides) else [f"seed={run.seed or 0}"]
    words = rerun_overrides(run.folder, run.overrides)
    return [*words, *words_for_latents(run.config, words), *seed]


def _wandb(run: Run) -> dict[str, str]:
    """Texts in the configuration of a run's W&B logger; {} without one."""
    logger = run.config.get("logger")
    node = logger.get("wandb") if isinstance(logger, dict) else None
    return {key: value for key, value in node.items() if isinstance(value, str)} if isinstance(node, dict) else {}
