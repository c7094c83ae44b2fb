"""All faults of a configuration at once, before step 1, before any download, and before job 0 of a sweep.

`check` is a pure function of the configuration and of what the machine has: it writes nothing, downloads nothing and
computes nothing that starts a thread pool or touches a GPU, because a launcher forks after it.
"""

from __future__ import annotations

import copy

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.machine import check_disk, check_folder, check_machine
from diffusion_lab.cli.checks.settings import check_settings
from diffusion_lab.cli.errors import ConfigError, MissingHere
from diffusion_lab.cli.processes import world_size


def check(
    cfg: DictConfig, config_dirs: list[str] | None = None, passed: set[str] | None = None, here: bool = True
) -> list[ConfigError]:
    """Faults of a configuration of `diffusion-lab train`, each one sentence; empty if it may run.

    Later looks need what earlier ones have found to be well formed: names and ranges of the settings and the
    signatures of all parts first, then the parts themselves. With `dry_run=true` it is no fault that something is not
    on this machine: the cost can be told all the same.

    Args:
        cfg: the composed configuration, without Hydra's node.
        config_dirs: folders given with --config-dir; modules beside them are the user's own.
        passed: configurations, but for seed and paths, that were found faultless; this one is added if it is. Another
            seed of such a one has its settings and its folder looked at alone, because building all parts takes most
            of the time that a sweep needs before job 0.
        here: the run takes place on this machine; otherwise its GPUs say nothing.
    """
    from diffusion_lab.cli.checks.signatures import check_nodes
    from diffusion_lab.cli.targets import own_folders

    cfg = copy.deepcopy(cfg)  # Hydra's `instantiate` writes resolved values into nodes that are referred to
    errors = check_settings(cfg)
    seedless = OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key not in ("seed", "paths")]))
    if passed and not errors and seedless in passed:
        return check_folder(cfg)
    errors = [*errors, *check_nodes(cfg, own_folders(config_dirs or []))]
    if errors:
        return _once(errors)
    errors = _check_parts(cfg, here)
    if cfg.dry_run:
        errors = [error for error in errors if not isinstance(error, MissingHere)]
    if passed is not None and not errors:
        passed.add(seedless)
    return _once(errors + check_folder(cfg))


def missing_here(cfg: DictConfig) -> list[MissingHere]:
    """What a faultless configuration needs and this machine does not have."""
    return [error for error in _once(_check_parts(copy.deepcopy(cfg))) if isinstance(error, MissingHere)]


def _check_parts(cfg: DictConfig, here: bool = True) -> list[ConfigError]:
    """Faults of the machine, if the run takes place `here`, of the parts and the disk."""
    from diffusion_lab.cli.checks.parts import Parts
    from diffusion_lab.cli.checks.sharding import against_sharding

    errors = check_machine(cfg, here)
    parts = Parts(cfg, max(1, world_size(cfg)))
    errors += parts.errors
    errors += [ConfigError(fault) for fault in against_sharding(cfg, parts.objects)]
    if "network" in parts.objects and "optimizer" in parts.objects:
        errors += check_disk(cfg, sum(parameter.numel() for parameter in parts.objects["network"].parameters()))
    return errors


def check_read_back(cfg: DictConfig, parts: tuple[str, ...]) -> list[ConfigError]:
    """Faults of parts of a configuration that was read from a run folder or a checkpoint, before they are built.

    Such a file may come from somebody else, so only classes of this package and its libraries are allowed in it.

    Args:
        cfg: the configuration, with references resolved.
        parts: the top-level nodes that will be built.
    """
    from diffusion_lab.cli.checks.signatures import check_nodes

    return check_nodes(OmegaConf.masked_copy(cfg, [name for name in parts if name in cfg]), own=())


def _once(errors: list[ConfigError]) -> list[ConfigError]:
    """Without repetitions, in order."""
    return list({str(error): error for error in errors}.values())
