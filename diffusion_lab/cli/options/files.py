"""Groups of the configuration and their yaml files: comment, keys with defaults and comments, and the class named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diffusion_lab.cli.options.defaults import defaults
from diffusion_lab.files import read_text

HIDDEN = ("hydra", "base")  # what Hydra and the presets alone use
KEY = re.compile(r"(?P<key>\w+):(?: +(?P<value>.*?))?(?: +# (?P<comment>.*))?")


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
    found = _keys(read_text(path).splitlines(), {})
    return [key for key in found if "." not in key.name and key.default != "{...}"]


def read_option(group: str, name: str, folders: Sequence[Path]) -> Option:
    """The option `group=name`; Hydra's rule, the first folder that has the file."""
    path = next(path for folder in folders if (path := folder / group / f"{name}.yaml").is_file())
    lines = read_text(path).splitlines()
    option = _with_defaults(Option(group, name, path, *_comment(lines)), folders)
    option = replace(option, target=_target(lines) or option.target)
    keys = {key.name: key for key in option.keys}
    for key in _keys(lines, option.inside):
        keys[key.name] = replace(key, comment=key.comment or keys.get(key.name, key).comment)
    return replace(option, keys=tuple(keys.values()))


def _with_defaults(option: Option, folders: Sequence[Path]) -> Option:
    """The option with what its defaults list says: parts, and all of the option that it extends."""
    for entry in defaults(option.path):
        if entry.overrides:
            option.sets[f"{entry.group}@{entry.place}" if entry.place else entry.group] = entry.option or "null"
        elif entry.option is None:  # another file of the group, which this one extends
            above = read_option(option.group, entry.group.removeprefix(f"{option.group}/"), folders)
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


def _keys(lines: Sequence[str], inside: dict[str, str], place: str = "") -> Iterator[Key]:
    """The keys of a node, and those of the parts below it, whose classes are added to `inside`."""
    for key, value, comment, inner in _blocks(lines):
        if key.startswith("_") or key in ("defaults", "hydra"):
            continue
        name, below = f"{place}{key}", [line[2:] for line in inner]
        if target := _target(below):
            inside[name] = target
        yield Key(name, value or inside.get(name) or ("{...}" if inner else "null"), comment)
        yield from (one for one in _keys(below, inside, f"{name}.") if one.name.rpartition(".")[0] in inside)


def _blocks(lines: Sequence[str]) -> list[tuple[str, str, str, list[str]]]:
    """(key, value, comment, indented lines) of each top-level key."""
    found: list[tuple[str, str, str, list[str]]] = []
    for line in lines:
        match = KEY.fullmatch(line.rstrip())
        if match:
            value = (match["value"] or "").strip()
            comment = match["comment"] or ""
            if value.startswith("# "):  # a comment behind a key without a value
                value, comment = "", value[2:]
            found.append((match["key"], value.strip("'\""), comment, []))
        elif found and line.startswith((" ", "-")):
            found[-1][3].append(line)
    return found


def _target(inner: Sequence[str]) -> str:
    """The class that a node builds; "" if it builds none."""
    return next((line.split(":", 1)[1].split("#")[0].strip() for line in inner if line.startswith("_target_:")), "")


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
