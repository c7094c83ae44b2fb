"""The yaml files of tables and of their scales: which there are, and their content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import ConfigError, config_errors, nearest
from diffusion_lab.cli.options.files import options

if TYPE_CHECKING:
    from diffusion_lab.tables import Measure, Table, TableScale

TABLES, SCALES = "table", "table_scale"


def conf_folders(config_dir: str | None) -> list[Path]:
    """Folders with yaml files, the project's first."""
    from diffusion_lab.cli.config import conf_dir

    return [conf_dir(), *([Path(config_dir)] if config_dir else [])]


def table_names(folders: Sequence[Path]) -> list[str]:
    """All tables, as PAPER/NAME."""
    return [name for name in options(TABLES, folders) if name.count("/") == 1]


def scale_names(folders: Sequence[Path]) -> list[str]:
    """All scales."""
    return options(SCALES, folders)


def load_table(name: str, folders: Sequence[Path]) -> Table:
    """The table PAPER/NAME; ConfigError if there is none, or its file is wrong."""
    from diffusion_lab.tables import read_table

    content = _known("table", name, table_names(folders), folders)
    with config_errors(""):
        return read_table(name, content)


def load_scale(name: str, folders: Sequence[Path]) -> TableScale:
    """The scale of that name; ConfigError if there is none, or its file is wrong."""
    from diffusion_lab.tables import read_table_scale

    content = _known("scale", name, scale_names(folders), folders)
    with config_errors(""):
        return read_table_scale(name, content)


def measure_of(table: Table) -> Measure:
    """What the table measures.

    Raises:
        ConfigError: its node does not make a `Measure`, or names a class that is neither of the package nor the
            user's own.
    """
    from omegaconf import OmegaConf

    from diffusion_lab.cli.run_parts import RunParts
    from diffusion_lab.tables import Measure

    try:
        made = RunParts(OmegaConf.create({"measure": dict(table.measure)}))["measure"]
    except TypeError as error:  # an argument that it does not have
        made, why = None, f" ({error})"
    else:
        why = f", and this is {made!r}"
    if not isinstance(made, Measure):
        raise ConfigError(f"measure of {table.name} must make a subclass of diffusion_lab.tables.Measure{why}")
    return made


def _known(key: str, name: str, names: Sequence[str], folders: Sequence[Path]) -> dict[str, Any]:
    """The content of one of the files that there are."""
    if name not in names:
        raise ConfigError(f"{key}={name} must be one of {', '.join(names)}{nearest(name, names)}")
    return _content(TABLES if key == "table" else SCALES, name, folders)


def _content(kind: str, name: str, folders: Sequence[Path], used: tuple[str, ...] = ()) -> dict[str, Any]:
    """A file's keys over those of the file that it is `like`."""
    from omegaconf import OmegaConf

    places = [folder / kind / f"{name}.yaml" for folder in folders]
    path = next((place for place in places if place.is_file()), None)
    content = None if path is None else OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{kind}={name} must be a yaml file of keys; see conf/{kind}")
    own = {str(key): value for key, value in content.items()}
    like = own.pop("like", None)
    used = (*used, name)
    if like in used:
        raise ConfigError(f"like={like} of {name} must be another {kind}, and one that is not like this one")
    return own if like is None else _content(kind, str(like), folders, used) | own
