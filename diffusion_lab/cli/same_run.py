"""Whether two configurations are one run, and in which keys they differ."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.added_later import filled
from diffusion_lab.cli.config import ADDED_LATER, plain, read_back, without
from diffusion_lab.cli.errors import ConfigError, InvalidConfig

# What a continued run may change without becoming another run; everything outside the hash may change anyway.
MAY_CHANGE = (
    "max_steps",
    "trainer.max_steps",
    "metrics_every",
    "callbacks.checkpoint",
    "callbacks.generation.every",
    "callbacks.generation.metrics_every",
)


def check_same_run(cfg: DictConfig, saved: dict[str, Any], step: int) -> None:
    """A checkpoint continues only the configuration that wrote it.

    Raises:
        InvalidConfig: naming every key that differs, with both values.
    """
    errors = [
        ConfigError(
            f"{key}={now} must equal the checkpoint's {then} to continue its run; "
            "restore it, or train into a new folder"
        )
        for key, (then, now) in differences(read_back(saved), cfg).items()
    ]
    if cfg.max_steps < step:
        errors.append(ConfigError(f"max_steps={cfg.max_steps} must be at least {step}, where the run stands already"))
    if errors:
        raise InvalidConfig(errors)


def differences(saved: DictConfig, cfg: DictConfig) -> dict[str, tuple[Any, Any]]:
    """{key: (saved, now)} of the keys that make two configurations two runs, in alphabetic order."""
    old, new = (flatten(filled(plain(without(c)), ADDED_LATER)) for c in (saved, cfg))
    differ = [key for key in sorted(old | new) if old.get(key) != new.get(key) and not key.startswith(MAY_CHANGE)]
    return {key: (old.get(key), new.get(key)) for key in differ}


def flatten(node: Any, path: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are leaves."""
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, value in node.items() for k, v in flatten(value, f"{path}.{key}".lstrip(".")).items()}
