"""Yaml files of the user's that Hydra would not read as they are meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.command_line import config_dirs
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import choices_of, config_folders
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.metric_files import GROUP


def check_encoding(words: Sequence[str]) -> None:
    """Refuse a yaml file of a `--config-dir` that is not UTF-8 without a byte order mark.

    Editors on Windows write such a mark. Hydra then overlooks a first line `# @package ...` and puts the values into
    another node and says nothing.

    Args:
        words: after the command.

    Raises:
        ConfigError: names the first.
    """
    for path in _files(words):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} must be a file that can be read ({error.strerror}); remove it") from error
        if content.startswith(b"\xef\xbb\xbf"):
            found = "has a byte order mark"
        else:
            try:
                content.decode()
                continue
            except UnicodeDecodeError:
                found = "has another encoding"
        raise ConfigError(f"{path} must be UTF-8 without a byte order mark, and {found}; save it again as plain UTF-8")


def own_file(group: str, name: str = "") -> Path | None:
    """The yaml file of the user's own from which a part was composed; None for one of this package.

    Args:
        group: the part's group, whose option is that of the job; in a metric's group the name is the option.
        name: what follows the group in the path of the part.
    """
    folders = [Path(folder) for folder in config_folders()]
    if group == GROUP:
        option = name
    else:
        option = "" if name else str(choices_of(DictConfig({})).get(group))
    found = [folder / group / f"{option}.yaml" for folder in folders]
    return next((file for file in found if option and file.is_file()), None)


def misplaced(group: str, option: str, folders: Sequence[str]) -> str:
    """Where a yaml file of the user's own lies that was meant as an option of a group, and where it must lie; "" if
    there is none.

    Args:
        group: the group, e.g. sampler.
        option: the name that was typed.
        folders: given with --config-dir.
    """
    for folder in map(Path, folders if re.fullmatch(r"[\w-]+", option) else ()):
        right = folder / group
        if (right / f"{option}.yml").is_file():
            return f"{right / option}.yml must end in .yaml; rename it"
        for file in (folder / f"{option}.yaml", *sorted(folder.glob(f"*/{option}.yaml"))):
            if file.is_file() and file.parent != right:
                return f"{file.name} lies in {file.parent}, but a {group}'s must lie in {right}; move it there"
    return ""


def _files(words: Sequence[str]) -> Iterator[Path]:
    """Files of the folders, and of groups in them: ours, and those that are named. Others may be data sets."""
    if not (folders := [Path(folder) for folder in config_dirs(list(words))]):
        return
    named = {word.lstrip("+~").partition("=")[0].partition("@")[0].partition("/")[0] for word in words}
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()} | {
        name for name in named if name.isidentifier()
    }
    for folder in filter(os.path.isdir, folders):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfigError(f"--config-dir={folder} must be a folder that you may read; use another")
        yield from sorted(folder.glob("*.yaml"))
        for group in sorted(groups):
            yield from sorted((folder / group).rglob("*.yaml"))
