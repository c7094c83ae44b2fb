"""What a dashboard is of: the runs of a paper's presets, selected by tag, or those in a folder, selected by group."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.cli.compose_errors import explain, is_compose_error
from diffusion_lab.cli.config import compose_train, conf_dir, sweep_name_of
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.foreign import repeated
from diffusion_lab.cli.labels import TAGGED, tag
from diffusion_lab.dashboards import Logged, Selection, expected, logged_by
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.mirror import PROJECT
from diffusion_lab.runs.run import Run

PRESETS = "experiment"


class Source(NamedTuple):
    """The runs of a dashboard.

    Attributes:
        name: name of the dashboard.
        project: W&B project of the runs.
        selection: how W&B selects them.
        logged: what they log.
        jobs: their settings, as words of `diffusion-lab train`, by name of the preset or "" without one.
        out: folder for the files.
        mirrored: how many of the runs were logged to W&B; None if there are no runs yet.
    """

    name: str
    project: str
    selection: Selection
    logged: Logged
    jobs: Mapping[str, Sequence[Sequence[str]]]
    out: Path
    mirrored: int | None = None


def papers() -> list[str]:
    """The folders of presets in conf/experiment."""
    return sorted(path.name for path in (conf_dir() / PRESETS).iterdir() if path.is_dir())


def source_of(target: str, words: Sequence[str], seeds: Sequence[str]) -> Source:
    """The source that the command names.

    Args:
        target: a paper or a folder of runs.
        words: further settings of a paper's runs, e.g. scale=smoke.
        seeds: seeds of a paper's runs, where its presets do not vary them.

    Raises:
        ValueError: it is neither, it has no run, or the settings cannot be composed.
    """
    if target in papers():
        return _of_paper(target, words, seeds)
    if not Path(target).is_dir():
        raise ValueError(
            f"dashboard={target} must be a paper ({', '.join(papers())}) or a folder of runs{nearest(target, papers())}"
        )
    if words:
        raise ValueError(f"{words[0]} must be left out for a folder of runs, which have their settings; remove it")
    return _of_folder(Path(target))


def _of_paper(paper: str, words: Sequence[str], seeds: Sequence[str]) -> Source:
    better: dict[str, str] = {}
    jobs: dict[str, Sequence[Sequence[str]]] = {}
    clipped = False
    for path in sorted((conf_dir() / PRESETS / paper).glob("*.yaml")):
        fixed, varied = _swept([f"{PRESETS}={paper}/{path.stem}", *words])
        cfg = _composed(fixed)
        better |= _metrics(cfg)
        clipped |= bool(cfg.get("gradient_clip"))
        jobs[path.stem] = _jobs(fixed, varied, cfg.hydra.sweeper.get("params") or {}, seeds)
    chosen = [word.split("=", 1) for word in words if word.partition("=")[0] in TAGGED and "," not in word]
    selection = Selection(tags=(tag("paper", paper), *(tag(group, option) for group, option in chosen)))
    name = " ".join([paper, *words])
    return Source(name, PROJECT, selection, expected(better, clipped), jobs, Path("dashboards") / paper)


def _jobs(
    fixed: list[str], varied: dict[str, list[str]], params: Mapping[str, Any], seeds: Sequence[str]
) -> list[tuple[str, ...]]:
    """The jobs of a preset: typed settings come before what the preset sweeps, and there is a seed."""
    typed = {word.partition("=")[0] for word in fixed} | varied.keys()
    single, several = _swept([f"{key}={value}" for key, value in params.items() if key not in typed])
    axes = several | varied
    if "seed" not in axes.keys() | typed and not any(word.startswith("seed=") for word in single):
        axes["seed"] = [f"seed={seed}" for seed in seeds]
    return [(*fixed, *single, *combination) for combination in itertools.product(*axes.values())]


def _swept(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The words with one value, and key -> a word for each value of those with several, as `-m` reads them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    fixed, varied = [], {}
    try:
        overrides = OverridesParser.create().parse_overrides(list(words))
    except HydraException as error:
        raise ConfigError(explain(error, "train", list(words))) from error
    for word, override in zip(words, overrides, strict=True):
        if override.is_sweep_override():
            key = override.get_key_element()
            varied[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            fixed.append(word)
    return fixed, varied


def _composed(words: list[str]) -> Any:
    try:
        return compose_train(words, Path("runs") / "dashboard")
    except Exception as error:
        if not is_compose_error(error):
            raise
        raise ConfigError(explain(error, "train", words)) from error


def _metrics(cfg: Any) -> dict[str, str]:
    """The metrics that a run of this configuration logs, with their directions; needs no data."""
    from diffusion_lab.cli.metric_files import with_metrics
    from diffusion_lab.cli.run_parts import RunParts

    parts = RunParts(with_metrics(cfg))
    return parts["metrics"].directions(parts["dataset"])


def _of_folder(path: Path) -> Source:
    runs = [run for run in read_runs(path).runs if run.step > 0]
    if not runs:
        raise ValueError(f"dashboard={path} must hold a run that has begun to train; start one or give another folder")
    groups = tuple(dict.fromkeys(_wandb(run).get("group") or sweep_name_of(run.config, _choices(run)) for run in runs))
    projects = list(dict.fromkeys(_wandb(run)["project"] for run in runs if "project" in _wandb(run)))
    if len(projects) > 1:
        raise ValueError(
            f"dashboard={path} must hold runs of one W&B project, not of {', '.join(projects)}; choose one"
        )
    jobs = {"": [_recorded(run) for run in runs]}
    mirrored = sum(bool(_wandb(run)) for run in runs)
    project = projects[0] if projects else PROJECT
    name = path.resolve().name
    return Source(name, project, Selection(groups=groups), logged_by(runs), jobs, path / "dashboard", mirrored)


def _recorded(run: Run) -> list[str]:
    """The settings of a run."""
    seed = [] if any(word.startswith("seed=") for word in run.overrides) else [f"seed={run.seed or 0}"]
    return [*repeated(run.folder, run.overrides), *seed]


def _wandb(run: Run) -> dict[str, str]:
    """Texts in the configuration of a run's W&B logger; {} without one."""
    logger = run.config.get("logger")
    node = logger.get("wandb") if isinstance(logger, dict) else None
    return {key: value for key, value in node.items() if isinstance(value, str)} if isinstance(node, dict) else {}


def _choices(run: Run) -> dict[str, Any]:
    choices = run.info.get("choices")
    return choices if isinstance(choices, dict) else {}
