"""All errors of a configuration at once, before step 1, before any download, and before job 0 of a sweep.

`check` is a pure function of the configuration and the machine: it writes and downloads nothing, and starts neither a
thread pool nor a GPU context, because a launcher forks after it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.early import check_arguments
from diffusion_lab.cli.checks.machine import check_folder, check_machine
from diffusion_lab.cli.checks.settings import check_settings, unknown_settings
from diffusion_lab.cli.command_line import KEYED
from diffusion_lab.cli.config import config_folders, plain
from diffusion_lab.cli.errors import ConfigError, MissingHere
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.moved_images import NODE
from diffusion_lab.cli.untrusted_run import is_typed, paths_read_outside, paths_written_outside
from diffusion_lab.files import read_object
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.shell_commands import command, setting
from diffusion_lab.runs.signature import is_own

if TYPE_CHECKING:
    from diffusion_lab.cli.run_parts import RunParts
    from diffusion_lab.cli.targets import Trust


def check(
    cfg: DictConfig, config_dirs: list[str] | None = None, passed: set[str] | None = None, here: bool = True
) -> list[ConfigError]:
    """`examine` without the parts."""
    return examine(cfg, config_dirs, passed, here)[0]


def examine(
    cfg: DictConfig,
    config_dirs: list[str] | None = None,
    passed: set[str] | None = None,
    here: bool = True,
    searching: str | None = None,
) -> tuple[list[ConfigError], RunParts | None]:
    """Errors of a configuration of `diffusion-lab train`, each one sentence, and the parts built to find them.

    Later checks depend on earlier ones: first names and ranges of the settings and the signatures of all parts, then
    the parts themselves. With `dry_run=true`, data or devices that this machine lacks are no error, because the cost
    can be estimated without them.

    Args:
        cfg: the composed configuration, without Hydra's node.
        config_dirs: folders given with --config-dir; modules beside them are the user's own.
        passed: valid configurations without seed and paths; this one is added if it is valid. For another seed of one
            of them only settings and folder are checked, because building all parts takes most of the time before job 0
            of a sweep.
        here: whether the run takes place on this machine; otherwise its GPUs are not checked.
        searching: the sweeper that needs a value of the run, if one does.

    Returns:
        No errors if it may run. No parts if an earlier check failed or the configuration is in `passed`.
    """
    errors = check_settings(cfg)
    if passed and not errors and seedless(cfg) in passed:
        return check_folder(cfg), None
    try:
        trust = trust_of(cfg, config_dirs or [])
        complete = with_metrics(cfg)
    except ConfigError as error:
        return _once([*errors, error]), None
    early = check_arguments(complete)
    if early is not None and (errors or early):
        return _once([*errors, *early]), None
    from diffusion_lab.cli.checks.nodes import check_kind, check_nodes

    errors += check_kind(cfg, trust) or check_nodes(complete, trust)
    if errors:
        return _once(errors), None
    errors, parts = _check_parts(complete, trust, here, searching)
    if cfg.dry_run:
        errors = [error for error in errors if not isinstance(error, MissingHere)]
    if passed is not None and not errors:
        passed.add(seedless(cfg))
    return _once(errors + check_folder(cfg)), parts


def trust_of(cfg: DictConfig, config_dirs: list[str]) -> Trust:
    """The classes that may be named; with `resume=` fewer, because the run folder is not trusted unless it is signed.

    Raises:
        ConfigError: `allow` is given without `resume`, or a resumed run of somebody else's would write outside its
            folder.
    """
    from diffusion_lab.cli.own_run import with_own
    from diffusion_lab.cli.targets import Trust, own_folders

    if cfg.get("resume") is None:
        if cfg.get("allow") is not None and cfg.get("init_from") is None:
            raise ConfigError(
                f"allow={cfg.allow} must be null without resume=DIR or init_from=DIR; a class that you type is allowed"
            )
        return Trust.typed(config_dirs)
    record = read_object(Path(cfg.resume) / RECORD)
    if not is_own(record):
        _check_places(cfg, own_folders(config_dirs))
    return with_own(Trust.read(config_dirs, cfg.get("allow")), record, f"resume={cfg.resume}")


def _check_places(cfg: DictConfig, modules: tuple[Path, ...]) -> None:
    """Raise ConfigError unless a resumed run of somebody else's reads and writes in its folder alone, but for what is
    typed now."""
    folder, typed = Path(cfg.paths.run_dir), sys.argv[1:]  # as typed, without what the record adds
    try:
        content = plain(cfg)
    except OmegaConfBaseException:  # a reference that does not resolve, which check_nodes reports
        return
    for key, value in paths_written_outside(content, folder, modules):
        if not is_typed(key, value, typed):
            cure = "do not resume a folder like this, or only with download=false"
            raise ConfigError(f"resume={cfg.resume}: {key}={value} must lie in the run folder; {cure}")
    for key, value in paths_read_outside(content, folder, modules):
        if not is_typed(key, value, typed):
            again = command("train", setting("resume", cfg.resume), setting(key, value))
            cure = f"if that is where your files are, repeat it: {again}"
            raise ConfigError(f"resume={cfg.resume}: {key}={value} must lie in the run folder; {cure}")


def missing_here(cfg: DictConfig) -> list[MissingHere]:
    """What a valid configuration needs and this machine lacks."""
    complete = with_metrics(cfg)
    errors, _ = _check_parts(complete, trust_of(complete, config_folders()), here=True)
    return [error for error in _once(errors) if isinstance(error, MissingHere)]


def _check_parts(
    cfg: DictConfig, trust: Trust, here: bool, searching: str | None = None
) -> tuple[list[ConfigError], RunParts]:
    """Errors of the machine, if the run takes place `here`, of the parts and of the disk; and the parts.

    The network of a run gets the first global random numbers after its seed. If parts drew some while they were
    checked, all parts are therefore built again by the run.
    """
    import torch

    from diffusion_lab.cli.checks.parts import check_parts
    from diffusion_lab.cli.init_from import check_start
    from diffusion_lab.cli.run_parts import RunParts

    errors, parts, before = check_machine(cfg, here), RunParts(cfg, trust), torch.get_rng_state()
    errors += check_parts(parts, searching)
    if cfg.get("init_from") is not None and all(isinstance(error, MissingHere) for error in errors):
        errors += check_start(cfg, parts)
    return errors, parts if torch.equal(before, torch.get_rng_state()) else parts.fresh()


def check_command(command: str, cfg: DictConfig, config_dirs: list[str]) -> list[ConfigError]:
    """Errors in the words of a command other than `train`: unknown names, classes and arguments of its parts."""
    from diffusion_lab.cli.checks.nodes import check_nodes
    from diffusion_lab.cli.targets import Trust

    moved = command in KEYED and isinstance(cfg.get(NODE), DictConfig)
    if unknown := unknown_settings(command, [key for key in map(str, cfg) if not (moved and key == NODE)]):
        return [*map(ConfigError, unknown)]
    try:
        cfg = with_metrics(cfg)
    except ConfigError as error:
        return [error]
    trust = Trust.typed(config_dirs)
    own = [str(key) for key in cfg if key != "dataset"]  # a data set's file refers to settings of `train`
    return check_nodes(cfg, trust, only=own)


def seedless(cfg: DictConfig) -> str:
    """The configuration without its seeds and paths: jobs for which it is equal are checked and timed once. The seed of
    the data counts unless it is one, and that of the run where something else refers to it, as init_from=a-${seed}."""
    content = cast(dict[str, Any], OmegaConf.to_container(cfg))
    data = content.get("dataset")
    order = data.get("seed") if isinstance(data, dict) else None
    if order == "${seed}" or (type(order) is int and order >= 0):
        del content["dataset"]["seed"]
    text = repr({key: value for key, value in content.items() if key not in ("seed", "stream_seeds", "paths", "hydra")})
    return f"{text} seed={cfg.seed}" if "${seed}" in text.replace("'seed': '${seed}'", "") else text


def _once(errors: list[ConfigError]) -> list[ConfigError]:
    """Without repetitions, in order."""
    return list({str(error): error for error in errors}.values())
