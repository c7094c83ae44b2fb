"""Yaml files of the user's that Hydra would not read as they are meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.conf_folder import METRIC, conf_dir, config_dirs
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.files import read_object
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.shell_commands import key_of
from diffusion_lab.runs.signature import OWN_PARTS, config_dirs_of, is_own

if TYPE_CHECKING:
    from omegaconf import DictConfig


def check_encoding(words: Sequence[str]) -> None:
    """Refuse a yaml file of a `--config-dir` that is not UTF-8 without a byte order mark.

    Editors on Windows write such a mark. Hydra then overlooks a first line `# @package ...` and puts the values into
    another node without an error.

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


def own_file(cfg: DictConfig, group: str, name: str = "") -> Path | None:
    """The yaml file of the user's own from which a part was composed; None for one of this package.

    Args:
        cfg: the whole configuration, or that of the running job.
        group: the part's group, whose option is that of the job; in a metric's group the name is the option.
        name: what follows the group in the path of the part.
    """
    from diffusion_lab.cli.config import choices_of, config_folders

    folders = [Path(folder) for folder in config_folders(cfg)]
    if group == METRIC:
        option = name
    else:
        option = "" if name else str(choices_of(cfg).get(group))
    found = [folder / group / f"{option}.yaml" for folder in folders]
    return next((file for file in found if option and file.is_file()), None)


def misplaced(group: str, option: str, folders: Sequence[str]) -> str:
    """Where a yaml file of the user's own lies that was meant as an option of a group, and where it must lie; "" if
    there is none."""
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
    named = {re.split("[@/]", key_of(word))[0] for word in words}
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()} | set(filter(str.isidentifier, named))
    for folder in filter(os.path.isdir, folders):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfigError(f"--config-dir={folder} must be a folder that you may read; use another")
        yield from sorted(folder.glob("*.yaml"))
        for group in sorted(groups):
            yield from sorted((folder / group).rglob("*.yaml"))


def lost_dir(record: Any) -> str | None:
    """The first --config-dir of a run of the user's own that is not there any more."""
    return next((folder for folder in config_dirs_of(record) if not Path(folder).is_dir()), None)


def own_ones(words: Sequence[str]) -> str:
    """What to add to the message for an option that does not exist: where the user's own ones are looked for.

    Args:
        words: after the command, among them `run=` or `resume=` of a run that may have options of its own.
    """
    if config_dirs([*words]):
        return ""
    folders = [word.partition("=")[2].strip("'\"") for word in words if word.startswith(("run=", "resume="))]
    records = [record for folder in folders if (record := read_object(Path(folder) / RECORD)) is not None]
    if lost := next(filter(None, map(lost_dir, records)), None):
        return f"; {gone(lost)}"
    if any(record.get(OWN_PARTS) and not is_own(record) for record in records):
        return "; if it is your own, repeat --config-dir"
    return "; your own ones are found with --config-dir DIR"


def gone(folder: str) -> str:
    """The sentence about a --config-dir that is not there any more."""
    return f"its --config-dir was {folder}, which is not there; give --config-dir, where it is"
