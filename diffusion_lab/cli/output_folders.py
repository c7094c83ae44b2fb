"""Folders that a command writes to: write permission, and the files of Hydra."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.files import refuse_folder, write_whole
from diffusion_lab.files_inside import NotInside
from diffusion_lab.held_folder import current, hold
from diffusion_lab.runs.names import FILES, HYDRA, MULTIRUN, SWEEP, WRITTEN

if TYPE_CHECKING:
    from omegaconf import DictConfig

PLACES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "resume", "name", "paths.root")


def unmade(error: OSError, arguments: Iterable[str]) -> str:
    """The message for a run or sweep folder that Hydra could not make before it called the task.

    Args:
        error: the system's error.
        arguments: of the command; the message names the one that sets the folder.
    """
    words = [word.lstrip("+").partition("=") for word in arguments]
    typed = {key: value for key, _, value in words if key in PLACES}
    key = next((key for key in PLACES if key in typed), "paths.root")
    value, reason = typed.get(key, "runs"), error.strerror or type(error).__name__
    return f"{key}={value} must be a folder that can be made and written to ({reason}: {error.filename}); use another"


def check_places(key: str, top: Path, places: Iterable[Path], deep: bool = True) -> None:
    """Check that nothing that a command will write in a folder from elsewhere leads out of it through a link, or is a
    FIFO or a device, for which it would wait.

    Args:
        key: the setting that names the folder.
        top: the folder.
        places: files and folders in it that the command writes, there or not.
        deep: whether it also writes below them.

    Raises:
        ConfigError: names the first of these.
    """
    root = Path(os.path.realpath(top))
    for place in places:
        way = [top.joinpath(*place.relative_to(top).parts[:n]) for n in range(1, len(place.relative_to(top).parts) + 1)]
        for path in itertools.chain(way, _everything(place) if deep else ()):
            real, where = Path(os.path.realpath(path)), None
            if path.is_symlink() and not real.is_relative_to(root):
                where = f"leads to {real}, outside of the folder; replace the link by what it names"
            elif os.path.lexists(path) and not (path.is_symlink() or path.is_file() or path.is_dir()):
                where = "is neither a file nor a folder; remove it"
            if where:
                raise ConfigError(f"{key}={top} must hold its own files, and {path} {where}")


def _everything(place: Path) -> Iterator[Path]:
    """What lies below a folder; no link is followed."""
    for folder, folders, files in os.walk(place):
        yield from (Path(folder, name) for name in (*folders, *files))


def check_run_folder(key: str, folder: Path) -> None:
    """`check_places` for a run that starts or goes on in a folder that may exist: all that lies in the folder itself,
    and what lies below the folders that a run writes. Loggers of other programs keep links of their own in theirs."""
    if folder.is_dir():
        check_places(key, folder, [Path(entry) for entry in os.scandir(folder)], deep=False)
        check_places(key, folder, [folder / name for name in WRITTEN])
        try:
            for pattern in FILES:
                for path in folder.glob(pattern):
                    refuse_folder(path)
        except NotInside as error:
            raise ConfigError(f"{key}={folder} must hold its own files, and {error}") from error


def check_sweep_folder(folder: Path) -> None:
    """Raise ConfigError for a file that a sweep writes in its folder before its first job, if it is a link, a FIFO or
    anything else but a regular file."""
    for path in (folder / MULTIRUN, folder / SWEEP):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            where = f"{path} is no regular file; remove it"
            raise ConfigError(f"hydra.sweep.dir={folder} must hold its own files, and {where}")


def writable(key: str, folder: Path, top: Path | None = None, files: Collection[str] = (), make: bool = True) -> Path:
    """Make a folder that a command will write to, with its parents.

    Args:
        key: the setting that names the folder.
        folder: the folder.
        top: the folder from elsewhere in which it lies; None if the user named it.
        files: names of the files that the command will write there.
        make: False for a command that may find nothing to write: the folder is only looked at, or the one in which it
            would be made.

    Raises:
        ConfigError: it cannot be made or written to, a link in `top` leads elsewhere, or a folder has the name of a
            file.
        FolderMoved: it is held, and gone.
    """
    if top is not None:
        check_places(key, top, [folder])
    folder = current(folder)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        if not os.access(there, os.W_OK):
            raise PermissionError(13, "Permission denied")
        for name in {entry.name for entry in os.scandir(there)} & set(files):
            refuse_folder(folder / name)
    except NotInside as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(
            f"{key}={folder} must be a folder that can be written to ({error.strerror}); use another"
        ) from error
    return folder


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A temporary folder in `folder`, whose files are moved there at the end of the block; after an error, such as a
    full disk, none of them is left, and `folder` is removed if it is empty."""
    try:
        with TemporaryDirectory(prefix=".partial-", dir=folder) as name:
            place = Path(name)
            yield place
            for path in place.rglob("*"):
                if path.is_file():
                    refuse_folder(folder / path.relative_to(place))
            for path in sorted(place.rglob("*")):
                target = folder / path.relative_to(place)
                target.mkdir(exist_ok=True) if path.is_dir() else os.replace(path, target)
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


@contextmanager
def held_runs(cfg: DictConfig) -> Iterator[None]:
    """Hold the run folders that a command reads and may write to, `run=DIR` or a list; see `held_folder`."""
    from omegaconf import ListConfig

    runs = cfg.get("run")
    with ExitStack() as stack:
        for folder in runs if isinstance(runs, ListConfig) else [runs]:
            if isinstance(folder, str):
                stack.enter_context(hold(Path(folder)))
        yield


def write_hydra_folder(folder: Path, cfg: DictConfig, hydra_cfg: DictConfig) -> None:
    """Write the files that Hydra writes to .hydra, after the configuration has passed its checks."""
    from omegaconf import OmegaConf

    target = folder / HYDRA
    contents = {"config": cfg, "hydra": OmegaConf.create({"hydra": hydra_cfg}), "overrides": hydra_cfg.overrides.task}
    for name, content in contents.items():
        write_whole(target / f"{name}.yaml", as_yaml(content).encode())


def as_yaml(content: Any) -> str:
    """`OmegaConf.to_yaml`, written by libyaml where PyYAML has it, in a quarter of the time."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf._utils import get_omega_conf_dumper

    kind = get_omega_conf_dumper()
    if hasattr(yaml, "CDumper"):
        words = {"yaml_representers": kind.yaml_representers, "yaml_multi_representers": kind.yaml_multi_representers}
        kind = type("Dumper", (yaml.CDumper,), words)
    plain = OmegaConf.to_container(content, resolve=False, enum_to_str=True)
    return yaml.dump(plain, Dumper=kind, default_flow_style=False, allow_unicode=True, sort_keys=False)
