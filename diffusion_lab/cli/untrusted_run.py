"""Checks of a run folder, which is not trusted, but for one that this user has signed (`own_run`).

Two things in a run folder have effects when it is read: the configuration, whose classes `checks.recorded_config`
checks, and the overrides, which `resume=` repeats. Links are refused elsewhere: `diffusion_lab.files_inside` reads
through none, and `output_folders.check_places` finds those through which a command would write.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.output_folders import check_places
from diffusion_lab.cli.path_arguments import is_inside, path_arguments, read_paths, written_paths
from diffusion_lab.files import DEPTH
from diffusion_lab.runs.identity import filled
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.shell_commands import command, key_of, setting

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from diffusion_lab.cli.targets import Trust

# Given again on resume.
DROPPED = ("resume", "dry_run", "allow", "anew", "paths.root", "init_from")
SOURCE = ("config_hash", "step", "weights", "digest", "checksum")  # of the weights from which a run started
LONGEST = 100_000  # characters of an override: a list of a few thousand numbers
PLAIN = r"[\w. -]{1,80}"


def recorded_config(saved: Any) -> DictConfig:
    """`recorded_content` as a configuration."""
    from omegaconf import DictConfig

    return DictConfig(recorded_content(saved))


def recorded_content(saved: Any) -> dict[str, Any]:
    """The configuration in run.json or a checkpoint, with the defaults of keys that were added after the run.

    A run writes it with all references resolved. One that contains `${...}` was not written by a run and is rejected
    before it is resolved, because a reference can hide a `_target_` from the checks of the values.

    Raises:
        ConfigError: it is not a configuration, or contains a reference.
    """
    if not isinstance(saved, dict) or not saved or not all(isinstance(key, str) for key in saved):
        raise ConfigError(f"{RECORD} must hold a configuration under `config`; it is damaged or of another program")
    if reference := next(references(saved), None):
        raise ConfigError(f"{reference} must be a plain value: the configuration in a run folder holds no reference")
    if not isinstance(saved.get("dataset"), dict) or not isinstance(saved.get("network"), dict):
        raise ConfigError(f"{RECORD} must hold a data set and a network; it is damaged or of another program")
    recorded_init_identity(saved)
    return filled(saved)


def recorded_init_identity(saved: dict[str, Any]) -> dict[str, Any] | None:
    """What identifies the weights from which a recorded run started (`cli.init_weights`), without their place; or None.

    Raises:
        ConfigError: it is anything else; a path, which `init_from` is on the command line, would be read.
    """
    start = saved.get("init_from")
    if start is None:
        return None
    keys = SOURCE if isinstance(start, dict) and "checksum" in start else SOURCE[:-1]  # older runs have none
    values = [start.get(key) for key in keys] if isinstance(start, dict) else []
    allowed = [value is None or isinstance(value, int) or re.fullmatch(PLAIN, str(value)) for value in values]
    if not allowed or not all(allowed):
        raise ConfigError(f"init_from={start} in {RECORD} must be what a run records there; it is damaged")
    return dict(zip(keys, values, strict=True))


def references(node: Any, path: str = "") -> Iterator[str]:
    """`key=value` for every `${` and every `???` in the keys and values of plain containers."""
    if isinstance(node, dict):
        for key, value in node.items():
            if "${" in str(key):
                yield f"{path}{key}"
            yield from references(value, f"{path}{key}.")
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from references(value, f"{path}{i}.")
    elif isinstance(node, str) and ("${" in node or node == "???"):
        yield f"{path.rstrip('.')}={node}"


def resume_overrides(folder: Path, overrides: Any, typed: list[str], own: bool = False) -> list[str]:
    """The overrides of a run folder that `resume=` repeats.

    A run never records options, Hydra's own settings, references and other packages. A path that leads out of the
    folder may be recorded, but is used only if the user has signed the record, or repeats it on the command line.

    Raises:
        ConfigError: names the first that is not allowed.
    """
    key = f"resume={folder}"
    if not isinstance(overrides, list) or not all(isinstance(word, str) for word in overrides):
        raise ConfigError(f"{key}: `overrides` of {RECORD} must be a list of texts; it is damaged")
    typed_keys = {key_of(word) for word in typed}
    kept = []
    for word in overrides:
        name = key_of(word)
        if own and name == "paths.root" and name not in typed_keys:  # for the command that the record repeats
            kept.append(word)
            continue
        if name in DROPPED or name in typed_keys:
            continue
        if reason := _reason(word, name, own):
            raise ConfigError(
                f"{key}: its {RECORD} asks for {word[:80]!r}, and {reason}; do not resume a folder like this"
            )
        if not own and (path := _leads_out(word, name, folder)):
            cure = f"if that is where your files are, repeat it: {command('train', setting('resume', folder), word)}"
            raise ConfigError(f"{key}: its {RECORD} asks for {word}, and {path} lies outside of the folder; {cure}")
        kept.append(word)
    return kept


def rerun_overrides(folder: Path, overrides: Sequence[str]) -> list[str]:
    """The overrides of a run folder that another run of the same settings needs; ConfigError names one that a run never
    records."""
    kept = [word for word in overrides if key_of(word) == "init_from" or key_of(word) not in DROPPED]
    for word in kept:
        if reason := _reason(word, key_of(word)):
            raise ConfigError(f"{folder}: its {RECORD} asks for {word[:80]!r}, and {reason}; leave this folder out")
    return kept


def _reason(word: str, name: str, own: bool = False) -> str | None:
    """Why a run cannot have recorded this override; None if it can. `own`: the option of a group for another key is no
    reason, as in +features@dataset.features=dinov2."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if len(word) > LONGEST or sum(map(word.count, "[{(")) > DEPTH:
        return f"an override must have at most {LONGEST} characters and {DEPTH} brackets"
    if word.startswith("-"):
        return "an override must not be an option"
    if name == "hydra" or name.startswith(("hydra.", "hydra/", "paths")):
        return f"an override must not set {name}"
    if "${" in word or ("@" in name and not own):
        return "an override must be a plain value of its own key"
    try:
        swept = OverridesParser.create().parse_override(word).is_sweep_override()
    except HydraException:
        return "an override must read key=value"
    return "an override must be one value" if swept else None


def _leads_out(word: str, name: str, folder: Path) -> str | None:
    """The first path in the value of an override that is outside `folder`; None if there is none.

    The option of a group, `experiment=paper/table`, is not a path unless it contains `..`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from diffusion_lab.cli.config import conf_dir

    group = (conf_dir() / name).is_dir()
    for text in _texts(OverridesParser.create().parse_override(word).value()):
        path = Path(text)
        if group and not path.is_absolute() and ".." not in path.parts:
            continue
        if "/" not in text and "\\" not in text and not text.startswith(("~", "..")):
            continue
        if text.startswith("~") or "://" in text or not path.resolve().is_relative_to(folder.resolve()):
            return text
    return None


def is_typed(key: str, value: str, words: Sequence[str]) -> bool:
    """Whether the words of a command set a key to a value, by itself or in a node."""
    typed = ((key_of(word), word.partition("=")[2]) for word in words)
    return any(name == key or (key.startswith(f"{name}.") and value in given) for name, given in typed)


def _texts(value: Any) -> Iterator[str]:
    """All strings in the value of a parsed override."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool | int | float):
        yield str(getattr(value, "text", value))  # Hydra's QuotedString


def paths_written_outside(cfg: Any, folder: Path, modules: tuple[Path, ...] = ()) -> Iterator[tuple[str, str]]:
    """(key, value) of every argument by which a part, in plain containers, would write outside the run folder."""
    for path, node in _parts(cfg):
        yield from ((f"{path}{name}", value) for name, value in written_paths(node, folder, modules))


def paths_read_outside(cfg: Any, folder: Path, modules: tuple[Path, ...] = ()) -> Iterator[tuple[str, str]]:
    """(key, value) of every argument by which a part would read outside the run folder, by the record's word alone;
    ConfigError if a place in it holds a link that leads out of it, or a FIFO."""
    for path, node in _parts(cfg):
        for name, value in read_paths(node, modules):
            if is_inside(value, folder):
                place, top = Path(value).expanduser().resolve(), folder.resolve()
                check_places(f"{path}{name}", top, [_there(place, top)])
            else:
                yield f"{path}{name}", value


def check_read_paths(
    cfg: dict[str, Any], built: Container[str], folder: Path, trust: Trust, key: str, typed: Container[str] = ()
) -> None:
    """Raise ConfigError for a place that a record of somebody else's lets the parts of a run read, of the top-level
    nodes that are `built`, unless it lies in its folder, is allowed, or is the value of a key that is `typed` now."""
    allowed = {name.removeprefix("./") for name in trust.names}
    read = {name: node for name, node in cfg.items() if name in built}
    for name, value in paths_read_outside(read, folder, trust.folders):
        if name not in typed and value.removeprefix("./") not in allowed:
            place = value if "/" in value else f"./{value}"
            cure = f"add {setting('allow', place) if trust.command else f'allow={place!r}'}"
            raise ConfigError(
                f"{key}: its {RECORD} asks for {name}={value}, which lies outside of the folder; if that is where your "
                f"files are, {cure}"
            )


def _there(place: Path, top: Path) -> Path:
    """The place, or the first folder above a pattern such as `*.parquet`."""
    if place.exists() or not re.search(r"[*?[]", str(place.relative_to(top))):
        return place
    return next(one for one in place.parents if one.exists())


def _parts(cfg: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts in plain containers, outer ones first, with their dotted paths, which end with a dot."""
    if isinstance(cfg, dict) and "_target_" in cfg:
        yield path, cfg
    for key, value in cfg.items() if isinstance(cfg, dict) else enumerate(cfg) if isinstance(cfg, list) else ():
        yield from _parts(value, f"{path}{key}.")


def without_outside_paths(cfg: Any, folder: Path) -> Any:
    """Plain containers without what makes a part write outside the run folder: a place is left to its default, and
    nothing is downloaded. For reading a run, whose results do not depend on it."""
    kept = copy.deepcopy(cfg)
    for _, node in _parts(kept):
        for name in dict(written_paths(node, folder)):
            if path_arguments(node["_target_"])[name] == "downloaded":
                node["download"] = False
            else:
                del node[name]
    return kept
