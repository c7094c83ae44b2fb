"""Whether two configurations are the same run, and the keys in which they differ."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.added_later import ADDED_LATER, filled
from diffusion_lab.cli.config import plain, without
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.foreign import read_back
from diffusion_lab.runs.names import RECORD

# Keys in the hash that a continued run may change; keys outside the hash may always change.
MAY_CHANGE = (
    "max_steps",
    "trainer.max_steps",
    "metrics_every",
    "callbacks.checkpoint",
    "callbacks.generation.every",
    "callbacks.generation.metrics_every",
)


def check_same_run(cfg: DictConfig, saved: dict[str, Any], step: int) -> None:
    """Check that a configuration may continue the checkpoint of another.

    Raises:
        InvalidConfig: names every key that differs, with both values.
    """
    errors = [
        ConfigError(
            f"{key}={_short(now)} must equal the checkpoint's {_short(then)} to continue its run; "
            "restore it, or train into a new folder"
        )
        for key, (then, now) in differences(read_back(saved), cfg).items()
    ]
    if cfg.max_steps < step:
        errors.append(ConfigError(f"max_steps={cfg.max_steps} must be at least {step}, where the run stands already"))
    if errors:
        raise InvalidConfig(errors)


def check_origin(cfg: DictConfig, saved: Any, key: str) -> None:
    """Check that a checkpoint was written by the run of its folder, to which its results will be attributed.

    Args:
        cfg: the configuration in run.json.
        saved: the one in the checkpoint; None if it has none.
        key: setting and value that named the folder.

    Raises:
        ConfigError: it has no record, or the record of a run with another configuration.
    """
    if saved is None:
        raise ConfigError(f"{key}: the checkpoint must hold a run; it was written by another program")
    differ = differences(read_back(saved), cfg)
    if differ:
        name, (theirs, ours) = next(iter(differ.items()))
        raise ConfigError(
            f"{key}: the checkpoint must be this run's, and is of one with {name}={_short(theirs)} "
            f"where {RECORD} has {_short(ours)}; "
            "put each file back into the folder of its run"
        )


def differences(saved: DictConfig, cfg: DictConfig) -> dict[str, tuple[Any, Any]]:
    """{key: (saved, now)} of the keys that make the configurations different runs, in alphabetical order."""
    old, new = (flatten(filled(plain(without(c)), ADDED_LATER)) for c in (saved, cfg))
    differ = [key for key in sorted(old | new) if old.get(key) != new.get(key) and not key.startswith(MAY_CHANGE)]
    return {key: (old.get(key), new.get(key)) for key in differ}


def flatten(node: Any, path: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are leaves."""
    if not isinstance(node, dict):
        return {path: node}
    return {k: v for key, value in node.items() for k, v in flatten(value, f"{path}.{key}".lstrip(".")).items()}


def _short(value: Any) -> str:
    """The value as text; of a list of hundreds of numbers, such as a distribution, only its beginning and length."""
    text = str(value)
    return text if not isinstance(value, list) or len(text) <= 200 else f"{text[:40]}... ({len(value)} values)"
