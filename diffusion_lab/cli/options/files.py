"""Groups of the configuration and their yaml files: comment, keys with defaults and comments, and the class named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from diffusion_lab.cli.conf_folder import yaml_nodes
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.options.defaults import DefaultsEntry, defaults
from diffusion_lab.files import read_text

HIDDEN = ("hydra", "base")  # what Hydra and the presets alone use
BESIDE = re.compile(r":?(?: +[|>][-+\d]*)?(?: +# (?P<comment>.*))?")
ALIAS = re.compile(r": +(?P<name>\*\S+)")
Node = Any  # PyYAML's, whose classes are imported with it, when a file is read
_EMPTY = {"scalar": "null"}  # what a value is of which nothing is written


@dataclass(frozen=True)
class Key:
    """One key of an option: its default as the file has it, and the comment behind it."""

    name: str
    default: str
    comment: str = ""


@dataclass(frozen=True)
class Option:
    """One yaml file of a group.

    Attributes:
        group: such as `sampler` or `sampler/distribution`.
        name: of the option.
        path: the file.
        about: the paragraphs of the comment above its first line; lines that are indented are kept as they are.
        commands: those that the comment has.
        target: dotted name of the class or function that it builds; "" for a file that sets keys alone.
        keys: in the order of the file, those of an option that it extends first.
        parts: name of the key -> (group, option) of the parts that its defaults list places below it, "" for none.
        sets: group, or group@place, -> option of the parts that it overrides, for methods and experiments.
        inside: name of the key -> class of the parts that the file itself has below it, at any depth; their keys are in
            `keys` as `source.root`.
    """

    group: str
    name: str
    path: Path
    about: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    target: str = ""
    keys: tuple[Key, ...] = ()
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """What selects it on the command line."""
        return f"{self.group}={self.name}"

    @property
    def builds(self) -> str:
        """The class that it is about: `target`, or that of the one part of a family such as the auxiliary losses."""
        first, *others = dict.fromkeys(key.name.partition(".")[0] for key in self.keys) or ("",)
        return self.target or ("" if others else self.inside.get(first, ""))


def groups(folders: Sequence[Path]) -> list[str]:
    """Names of all groups, those of train.yaml in its order first, `sampler/distribution` behind `sampler`."""
    named = [entry.group for entry in defaults(folders[0] / "train.yaml") if not entry.overrides]
    found = {path.parent.relative_to(top).as_posix() for top in folders for path in top.rglob("*.yaml")} - {"."}
    found = {name for name in found if not name.startswith(".") and "/." not in name}  # editors' own folders
    # Presets lie in folders of papers, experiment=paper/table; those folders are no groups of their own.
    found = {name.partition("/")[0] if of_presets(name) else name for name in found}
    kept = [name for name in found if name.partition("/")[0] not in HIDDEN and not name.endswith("/base")]
    place = {name: number for number, name in enumerate(named)}
    return sorted(kept, key=lambda name: (place.get(name.partition("/")[0], len(place)), name))


def options(group: str, folders: Sequence[Path]) -> list[str]:
    """Names of the options of a group, sorted."""
    found = set()
    for folder in folders:
        place = folder / group
        files = place.rglob("*.yaml") if of_presets(group) else place.glob("*.yaml")
        found |= {path.relative_to(place).with_suffix("").as_posix() for path in files}
    return sorted(found)


def default(group: str, folders: Sequence[Path]) -> str:
    """The option that `diffusion-lab train` takes; "" where it takes none."""
    entries = defaults(folders[0] / "train.yaml")
    return next((entry.option or "" for entry in entries if entry.group == group and not entry.overrides), "")


def of_presets(name: str) -> bool:
    """Whether a group, or a folder of a paper in it, is of whole experiments or tables."""
    return name.partition("/")[0] in ("experiment", "table")


def settings(path: Path) -> list[Key]:
    """The keys at the top of a command's file, without nodes."""
    text = read_text(path)
    found = _keys(yaml_nodes(path, text), text, {})
    return [key for key in found if "." not in key.name and key.default != "{...}"]


def read_option(group: str, name: str, folders: Sequence[Path]) -> Option:
    """The option `group=name`; Hydra's rule, the first folder that has the file."""
    path = next(path for folder in folders if (path := folder / group / f"{name}.yaml").is_file())
    text = read_text(path)
    node = yaml_nodes(path, text)
    option = _with_defaults(Option(group, name, path, *_comment(text.splitlines())), folders)
    option = replace(option, target=_target(node) or option.target)
    keys = {key.name: key for key in option.keys}
    for key in _keys(node, text, option.inside):
        keys[key.name] = replace(key, comment=key.comment or keys.get(key.name, key).comment)
    return replace(option, keys=tuple(keys.values()))


def _with_defaults(option: Option, folders: Sequence[Path]) -> Option:
    """The option with what its defaults list says: parts, and all of the option that it extends."""
    for entry in defaults(option.path):
        if entry.overrides:
            option.sets[f"{entry.group}@{entry.place}" if entry.place else entry.group] = entry.option or "null"
        elif entry.option is None:  # another file of the group, which this one extends
            above = _extended(option, entry, folders)
            option = replace(
                option,
                target=above.target,
                keys=above.keys,
                parts=above.parts | option.parts,
                sets=above.sets | option.sets,
                inside=above.inside,
            )
        elif entry.from_top:
            option.parts[entry.place or entry.group] = (entry.group, entry.option or "null")
        else:
            option.parts[entry.group] = (f"{option.group}/{entry.group}", entry.option)
    return option


def _extended(option: Option, entry: DefaultsEntry, folders: Sequence[Path]) -> Option:
    """The option that another one extends, by a name in its group or from the top of the folder.

    Raises:
        ConfigError: there is no such file.
    """
    group, name = option.group, entry.group.removeprefix(f"{option.group}/")
    if entry.from_top and name == entry.group:
        group, _, name = name.rpartition("/")
    if not any((folder / group / f"{name}.yaml").is_file() for folder in folders):
        known = ", ".join(options(group, folders)) or "none"
        raise ConfigError(
            f"{option.path}: defaults: {entry.group} must be a file of {group or 'conf'} ({known}); correct its name"
        )
    return read_option(group, name, folders)


def _keys(node: Node | None, text: str, inside: dict[str, str], place: str = "") -> Iterator[Key]:
    """The keys of a node, and those of the parts below it, whose classes are added to `inside`."""
    for key, value in _pairs(node):
        name = f"{place}{key.value}"
        if key.value.startswith("_") or name in ("defaults", "hydra"):
            continue
        if target := _target(value):
            inside[name] = target
        yield Key(
            name,
            _written(key, value, text) or inside.get(name, "") or _EMPTY.get(value.id, "{...}"),
            _beside(key, value, text),
        )
        yield from (one for one in _keys(value, text, inside, f"{name}.") if one.name.rpartition(".")[0] in inside)


def _pairs(node: Node | None) -> list[tuple[Node, Node]]:
    """(key, value) of a mapping; none of another node."""
    return node.value if node is not None and node.id == "mapping" else []


def _target(node: Node | None) -> str:
    """The class that a node builds; "" if it builds none."""
    return next((value.value for key, value in _pairs(node) if key.value == "_target_"), "")


def _written(key: Node, value: Node, text: str) -> str:
    """A value as the file has it, on one line and without quotes; "" of a node that takes lines of its own."""
    if found := _alias(key, value, text):
        return found["name"]
    if value.id == "scalar":
        return " ".join(value.value.split())
    if not value.flow_style:
        return ""
    lines = text[value.start_mark.index : value.end_mark.index].split("\n")
    return " ".join(" ".join(re.sub(r" # .*", "", line) for line in lines).split())


def _alias(key: Node, value: Node, text: str) -> re.Match[str] | None:
    """The name of an earlier node, which PyYAML gives in its place."""
    return ALIAS.match(text, key.end_mark.index) if value.start_mark.index < key.end_mark.index else None


def _beside(key: Node, value: Node, text: str) -> str:
    """The comment behind a value; behind the key of one that takes lines of its own."""
    plain = value.id == "scalar" and value.style not in ("|", ">")
    end = (value if plain or value.id != "scalar" and value.flow_style else key).end_mark.index
    if alias := _alias(key, value, text):
        end = alias.end()
    found = BESIDE.match(text, end)
    return (found and found["comment"]) or ""


def _comment(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The comment above the first key, as paragraphs and as commands.

    A paragraph is a sentence that ends with its line; a line that is indented keeps its indentation, and is a command
    if it begins with the program's name.
    """
    paragraphs: list[str] = []
    commands: list[str] = []
    above = [line[1:] for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]
    for line in "\n".join(above).replace("\\\n", "").split("\n"):  # a command goes on behind a backslash
        text, last = " ".join(line.split()), paragraphs[-1] if paragraphs else "."
        if text.startswith("@package") or not text:
            continue
        if line.startswith("  "):
            commands += [text] if text.startswith("diffusion-lab ") else []
            paragraphs += [] if text.startswith("diffusion-lab ") else [f"    {line.strip()}"]
        elif last.endswith((".", ":")) and not last.endswith("et al.") or last.startswith("    "):
            paragraphs.append(text)
        else:
            paragraphs[-1] += f" {text}"
    return tuple(paragraphs), tuple(commands)
