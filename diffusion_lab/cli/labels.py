"""Labels of a run in W&B: what runs are grouped by, and the tags that they are selected by."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.config import choices_of, method_name, run_name

TAGGED = ("dataset", "schedule", "scale")  # groups whose option is a tag


def options_of(cfg: DictConfig) -> dict[str, Any]:
    """Group -> option, without Hydra's own groups."""
    return {group: option for group, option in choices_of(cfg).items() if not group.startswith("hydra/")}


def labels(cfg: DictConfig, group_hash: str) -> dict[str, Any]:
    """Entries for the configuration in W&B: the method, the options, and `seed_group`, which is the run's name without
    its seed and is equal for runs that differ in the seed alone."""
    without_seed = run_name(cfg).removesuffix(f"-s{cfg.get('seed')}")
    seed_group = f"{without_seed}-{group_hash[:8]}"
    return {"method": method_name(cfg), "options": options_of(cfg), "seed_group": seed_group}


def tags(cfg: DictConfig) -> list[str]:
    """`paper:NAME`, the folder of the preset, `experiment:`, `method:`, `dataset:`, `schedule:` and `scale:`, as far as
    the run has them. The prefix distinguishes a paper from a method of the same name."""
    options = options_of(cfg)
    preset = str(options.get("experiment") or "")
    named = {"paper": preset.rpartition("/")[0], "experiment": preset, "method": method_name(cfg)}
    return [tag(key, value) for key, value in (named | {key: options.get(key) for key in TAGGED}).items() if value]


def tag(key: str, value: Any) -> str:
    """`key:value`"""
    return f"{key}:{value}"
