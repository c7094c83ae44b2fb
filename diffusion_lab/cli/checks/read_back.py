"""The check of a configuration that was read from a run folder."""

from __future__ import annotations

from typing import Any

from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.foreign import read_back
from diffusion_lab.cli.targets import Trust
from diffusion_lab.runs.names import RECORD


def check_read_back(saved: Any, parts: tuple[str, ...], trust: Trust) -> list[ConfigError]:
    """Errors of a configuration that was read from a run folder, before any part of it is built.

    The file is not trusted, so all of it is checked, including parts that are not built. `run.json` is written with all
    references resolved, so a file that contains one is rejected.

    Args:
        saved: the configuration as read from JSON.
        parts: the top-level nodes that will be built; only these must match the current signatures.
        trust: what is allowed besides this package's classes, `Trust.read(...)`.
    """
    try:
        cfg = read_back(saved)
    except ConfigError as error:
        return [error]
    optional = {group for group, default in part_groups().items() if default is None}
    required = {*parts, "seed", "trainer", "precision"} - optional
    lacking = sorted(name for name in required if cfg.get(name) is None)
    if lacking:
        return [ConfigError(f"{lacking[0]} is missing in {RECORD}; it is damaged, or of another program")]
    return check_nodes(cfg, trust, only=parts)
