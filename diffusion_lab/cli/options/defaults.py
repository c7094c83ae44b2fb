"""The defaults lists of the yaml files, and which option of a group a run's name implies.

An entry of a list is one of

    - name                       another file of the same group, or with / of any, whose content comes first
    - group: option              a part, below the file's own group; with /group of any, at group@place
    - override /group: option    another option for a part that is in the list of the whole configuration
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.cli.conf_folder import conf_dir, yaml_file

WORDS = re.compile(r"(?P<override>override )?(?P<slash>/?)(?P<group>[\w/.-]+)(?:@(?P<place>[\w.]+))?")


class DefaultsEntry(NamedTuple):
    """One entry of a defaults list.

    Attributes:
        group: without the leading "/"; of another file its name.
        option: "" for null; None for another file.
        place: the key that the part has; "" where the group says it.
        overrides: whether it replaces an entry of the whole configuration.
        from_top: whether the group is named from the top of the folder, with "/".
    """

    group: str
    option: str | None = None
    place: str = ""
    overrides: bool = False
    from_top: bool = False


def defaults(path: Path) -> tuple[DefaultsEntry, ...]:
    """The entries of a file's defaults list, without `_self_`."""
    return _defaults(path, path.stat().st_mtime_ns)


@cache
def _defaults(path: Path, changed: int) -> tuple[DefaultsEntry, ...]:
    content = yaml_file(path)
    entries = content.get("defaults") if isinstance(content, dict) else None
    found = []
    for entry in entries if isinstance(entries, list) else ():
        words, option = next(iter(entry.items())) if isinstance(entry, dict) and entry else (entry, "")
        match = WORDS.fullmatch(str(words))
        if match and words != "_self_":
            value = None if isinstance(entry, str) else "" if option is None else str(option)
            overrides, from_top = map(bool, match.group("override", "slash"))
            found.append(DefaultsEntry(match["group"], value, match["place"] or "", overrides, from_top))
    return tuple(found)


def implied_options(hydra: Any, group: str) -> tuple[str, ...]:
    """The options of a group that a run's name implies: those that the preset sweeps; else the one of the preset, else
    of the method, else of the task, else of the base that one of them states, else of train.yaml.

    Args:
        hydra: Hydra's node of the job.
        group: e.g. "schedule".
    """
    from omegaconf import OmegaConf

    choices = hydra.runtime.choices
    swept = (OmegaConf.select(hydra, "sweeper.params") or {}).get(group) if choices.get("experiment") else None
    if swept is not None:
        return tuple(option.strip() for option in str(swept).split(","))
    folders = _folders(hydra)
    for layer in ("experiment", "method", "task", "base"):
        if choices.get(layer) and (option := _overridden(folders, f"{layer}/{choices[layer]}", group)):
            return (option,)
    return tuple(entry.option or "" for entry in defaults(conf_dir() / "train.yaml") if entry.group == group)


def overruled(hydra: Any) -> dict[str, tuple[str, str]]:
    """Group -> (option of the experiment, option of the method): parts that the method states and does not get, because
    the experiment states them as well and nobody typed them. Both are chosen."""
    choices = hydra.runtime.choices
    typed = {word.partition("=")[0] for word in hydra.overrides.task}
    found, folders = {}, _folders(hydra)
    for group in {entry.group for entry in defaults(conf_dir() / "train.yaml")} - typed - {"base"}:
        layers = (f"{layer}/{choices[layer]}" for layer in ("experiment", "method"))
        taken, stated = (_overridden(folders, layer, group) for layer in layers)
        if taken and stated and taken != stated and taken == choices.get(group):
            found[group] = (taken, stated)
    return dict(sorted(found.items()))


def stated(hydra: Any, family: str) -> set[str]:
    """The parts of a family, such as auxiliary, that the files of preset and method define in themselves."""
    found: set[str] = set()
    for layer in ("experiment", "method"):
        file = _file(_folders(hydra), f"{layer}/{hydra.runtime.choices.get(layer)}")
        content = yaml_file(file) if file else None
        node = content.get(family) if isinstance(content, dict) else None
        found |= set(node) if isinstance(node, dict) else set()
    return found


def _folders(hydra: Any) -> tuple[Path, ...]:
    """Where the job's yaml files are looked for: those of --config-dir first."""
    from omegaconf import OmegaConf

    found = []
    for source in OmegaConf.select(hydra, "runtime.config_sources") or []:
        if source.schema == "file":
            found.append(Path(source.path))
    return tuple(found) or (conf_dir(),)


def _file(folders: tuple[Path, ...], name: str) -> Path | None:
    return next((folder / f"{name}.yaml" for folder in folders if (folder / f"{name}.yaml").is_file()), None)


def _overridden(folders: tuple[Path, ...], name: str, group: str) -> str | None:
    """The option with which a file, or a file in its defaults list, overrides a group."""
    file = _file(folders, name)
    entries = defaults(file) if file else ()
    for entry in entries:
        if entry.overrides and entry.group == group:
            return entry.option
    for entry in entries:
        other = entry.group if entry.from_top else f"{name.rpartition('/')[0]}/{entry.group}"
        if entry.option is None and other != name and (option := _overridden(folders, other, group)):
            return option
    return None
