"""The check of a configuration that was read from a run folder."""

from __future__ import annotations

import shlex
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.targets import ALLOWED_IN_RECORD, Trust
from diffusion_lab.cli.untrusted_run import recorded_config
from diffusion_lab.runs.names import RECORD


def checked_config(saved: Any, parts: tuple[str, ...], trust: Trust, named: str) -> DictConfig:
    """The configuration that was read from a run folder, checked before any part of it is built.

    The file is not trusted, so all of it is checked, including parts that are not built. `run.json` is written with all
    references resolved, so a file that contains one is rejected.

    Args:
        saved: the configuration as read from JSON, or `recorded_config` of it.
        parts: the top-level nodes that will be built; only these must match the current signatures.
        trust: what is allowed besides this package's classes, `Trust.read(...)`.
        named: the setting and value that named the folder.

    Raises:
        InvalidConfig: all that is wrong with it.
    """
    try:
        cfg = saved if isinstance(saved, DictConfig) else recorded_config(saved)
    except ConfigError as error:
        raise InvalidConfig([error], named) from error
    optional = {group for group, default in part_groups().items() if default is None}
    required = {*parts, "seed", "trainer", "precision"} - optional
    lacking = sorted(name for name in required if cfg.get(name) is None)
    if lacking:
        fault = ConfigError(f"{lacking[0]} is missing in {RECORD}; it is damaged, or of another program")
        raise InvalidConfig([fault], named)
    if errors := check_nodes(cfg, trust, only=parts):
        raise InvalidConfig(_together(errors, trust), named)
    return cfg


def _together(errors: list[ConfigError], trust: Trust) -> list[ConfigError]:
    """One sentence for all classes that are not allowed, because one option allows them all."""
    split = [str(error).split(f" must be {ALLOWED_IN_RECORD}; ") for error in errors]
    keys = [before for before, *after in split if after]
    first = {key.partition("=")[2]: key for key in reversed(keys)}  # class -> the first place that names it
    names = list(reversed(first))
    if len(names) < 2:
        return errors
    repeat = "repeat --config-dir or " if trust.command else ""
    allow = shlex.quote(f"allow=[{','.join(names)}]") if trust.command else f"allow={names}"
    cure = f"if the classes are your own, {repeat}add {allow}"
    one = ConfigError(f"{', '.join(first[name] for name in names)} must be {ALLOWED_IN_RECORD}; {cure}")
    return [one, *(error for error, parts in zip(errors, split, strict=True) if len(parts) == 1)]
