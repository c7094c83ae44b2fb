"""The yaml files of tables and of their scales: which there are, and their content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import ConfigError, config_errors, nearest

if TYPE_CHECKING:
    from diffusion_lab.tables import Scale, Table

TABLES, SCALES = "table", "table_scale"


def conf_folders(config_dir: str | None) -> list[Path]:
    """Folders with yaml files, the project's first."""
    from diffusion_lab.cli.config import conf_dir

    return [conf_dir(), *([Path(config_dir)] if config_dir else [])]


def table_names(folders: Sequence[Path]) -> list[str]:
    """All tables, as PAPER/NAME."""
    paths = [path.relative_to(folder / TABLES) for folder in folders for path in (folder / TABLES).glob("*/*.yaml")]
    return sorted(str(path.with_suffix("")) for path in paths)


def scale_names(folders: Sequence[Path]) -> list[str]:
    """All scales."""
    return sorted(path.stem for folder in folders for path in (folder / SCALES).glob("*.yaml"))


def load_table(name: str, folders: Sequence[Path]) -> Table:
    """The table PAPER/NAME.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    from diffusion_lab.tables import read_table

    names = table_names(folders)
    if name not in names:
        raise ConfigError(f"table={name} must be one of {', '.join(names)}{nearest(name, names)}")
    with config_errors(""):
        return read_table(name, _content(TABLES, name, folders))


def load_scale(name: str, folders: Sequence[Path]) -> Scale:
    """The scale of that name.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    from diffusion_lab.tables import read_scale

    names = scale_names(folders)
    if name not in names:
        raise ConfigError(f"scale={name} must be one of {', '.join(names)}{nearest(name, names)}")
    with config_errors(""):
        return read_scale(name, _content(SCALES, name, folders))


def _content(kind: str, name: str, folders: Sequence[Path]) -> dict[str, Any]:
    """A file's keys over those of the file that it is `like`."""
    from omegaconf import OmegaConf

    places = [folder / kind / f"{name}.yaml" for folder in folders]
    path = next((place for place in places if place.is_file()), None)
    content = None if path is None else OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{kind}={name} must be a yaml file of keys; see conf/{kind}")
    own = {str(key): value for key, value in content.items()}
    like = own.pop("like", None)
    return own if like is None else _content(kind, str(like), folders) | own
