"""The option of a group in the defaults lists of a preset, a method, their base and train.yaml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from diffusion_lab.cli.conf_folder import yaml_file


def stated(hydra: Any, choices: dict[str, Any], group: str, conf: Path) -> tuple[str, ...]:
    """The options of a group that a run's name omits: those that the preset sweeps; else the one of the preset, else of
    the method, else of the base that one of them states, else of train.yaml.

    Args:
        hydra: Hydra's node of the job.
        choices: group -> option of the job.
        group: e.g. "schedule".
        conf: the folder of the yaml files.
    """
    swept = (OmegaConf.select(hydra, "sweeper.params") or {}).get(group) if choices.get("experiment") else None
    if swept is not None:
        return tuple(option.strip() for option in str(swept).split(","))
    sources = OmegaConf.select(hydra, "runtime.config_sources") or []
    folders = [Path(source.path) for source in sources if source.schema == "file"] or [conf]
    for layer in ("experiment", "method", "base"):
        if choices.get(layer) and (said := _overridden(tuple(folders), f"{layer}/{choices[layer]}", group)):
            return (said,)
    return _in_train(conf, group)


@cache
def _in_train(conf: Path, group: str) -> tuple[str, ...]:
    return tuple([str(entry[group]) for entry in _defaults(conf / "train.yaml") if group in entry])


def _overridden(folders: tuple[Path, ...], name: str, group: str) -> str | None:
    """The option with which a file, or a file in its defaults list, overrides a group."""
    file = next((folder / f"{name}.yaml" for folder in folders if (folder / f"{name}.yaml").is_file()), None)
    entries = _defaults(file) if file else ()
    for entry in entries:
        if f"override /{group}" in entry:
            return str(entry[f"override /{group}"])
    for entry in entries:
        for other in (key for key, option in entry.items() if option is None and key not in ("_self_", name)):
            place = other.lstrip("/") if other.startswith("/") else f"{name.rpartition('/')[0]}/{other}"
            if said := _overridden(folders, place, group):
                return said
    return None


@cache
def _defaults(file: Path) -> tuple[dict[str, Any], ...]:
    """The entries of a file's defaults list: {key: option}, {name: None} for a bare name."""
    content = yaml_file(file)
    entries = content.get("defaults") if isinstance(content, dict) else None
    plain = entries if isinstance(entries, list) else []
    return tuple([{entry: None} if isinstance(entry, str) else dict(entry) for entry in plain if entry])
