"""Which classes and functions a configuration may name in `_target_`.

Configurations are shared between people, and `_target_` makes them executable. Hydra forbids some names; this module
allows only some, and checks the object that a name resolves to instead of the name: `diffusion_lab.data.os.system` is
`posix.system`. Allowed are this package, the optimizers of torch, the parts of Lightning listed below, and, for a
configuration composed on the command line, the user's own modules: those in the working folder, and those in a
folder given with --config-dir or beside it. A configuration that is read from a run folder or a checkpoint never
extends this list; only the command line does, with --config-dir or allow=file.Class, and the user's signature of a run
(`own_run`). `checks.nodes` checks which class may be used at which place.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.cli.errors import ConfigError, nearest

PACKAGES = ("diffusion_lab.", "torch.optim.")


class Allowed(NamedTuple):
    """A class of Lightning that may be named.

    Attributes:
        module: that defines it.
        places: its arguments that name places, as in `cli.path_arguments`, which other people's signatures do not tell.
    """

    module: str
    places: Mapping[str, str] = {}


LIGHTNING = "lightning.pytorch"
PROVIDED = {name.split(".")[0] for name in (*PACKAGES, LIGHTNING)}
FILE = {"dirpath": "written", "filename": "name"}
NAMES = {
    # `model_registry` is the name of a model on a server, to which checkpoints would be uploaded.
    f"{LIGHTNING}.Trainer": Allowed(
        f"{LIGHTNING}.trainer.trainer", {"default_root_dir": "written", "model_registry": "written"}
    ),
    f"{LIGHTNING}.strategies.DDPStrategy": Allowed(f"{LIGHTNING}.strategies.ddp"),
    f"{LIGHTNING}.profilers.SimpleProfiler": Allowed(f"{LIGHTNING}.profilers.simple", FILE),
    f"{LIGHTNING}.profilers.AdvancedProfiler": Allowed(f"{LIGHTNING}.profilers.advanced", FILE),
    f"{LIGHTNING}.callbacks.DeviceStatsMonitor": Allowed(f"{LIGHTNING}.callbacks.device_stats_monitor"),
}
ALLOWED_IN_RECORD = "a class of diffusion_lab or torch.optim in a configuration that is read from a run folder"
ALLOWED = (
    "a class of diffusion_lab or torch.optim, or of a module of your own in the working folder or beside a --config-dir"
)
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True)
class Trust:
    """The classes that a configuration may name besides those of this package and its libraries.

    Args:
        folders: folders with the user's own modules.
        names: dotted names of classes, and places to read from, with a slash, that the user has typed.
        of_record: the configuration was read from a run folder, so the error message says how to allow a class.
        command: whether the user typed a command, to which options can be added; else a function was called.
    """

    folders: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    of_record: bool = False
    command: bool = True

    @classmethod
    def typed(cls, config_dirs: list[str]) -> Trust:
        """For a configuration that was typed: modules in the working folder and in and beside each --config-dir."""
        return cls(own_folders(config_dirs))

    @classmethod
    def read(cls, config_dirs: list[str], allow: Any = None, command: bool = True) -> Trust:
        """For a configuration that was read from a run folder: only what the command line allows.

        Args:
            config_dirs: folders given with --config-dir. Without any, the working folder is not trusted either.
            allow: the setting of that name: None, a dotted name, a path with a slash, or a list of them.
            command: as the attribute.

        Raises:
            ConfigError: `allow` is invalid.
        """
        names: list[Any] = [] if allow is None else list(allow) if isinstance(allow, Sequence) else [allow]
        names = [allow] if isinstance(allow, str) else names
        if not all(isinstance(name, str) and ("." in name or "/" in name) for name in names):
            raise ConfigError(
                f"allow={allow} must be names of classes of your own, or places that may be read, with a slash; use "
                "allow=file.Class or allow=/data/photos"
            )
        return cls(own_folders(config_dirs) if config_dirs else (), tuple(names), True, command)


PACKAGE_ONLY = Trust(of_record=True)


@functools.cache  # called by the check and again when the part is built
def resolve(path: str, target: Any, trust: Trust) -> Any:
    """The class or function that `target` names.

    Raises:
        ConfigError: the name does not resolve, or the object is not allowed. A module that is not allowed is not
            imported.
    """
    key = f"{path}._target_={target}"
    if not isinstance(target, str) or not DOTTED.fullmatch(target):
        raise ConfigError(f"{key} must be a dotted name; allowed is {ALLOWED}")
    listed = target.startswith(PACKAGES) or target in NAMES or target in trust.names
    if target.startswith("diffusion_lab.cli.") or not (listed or own_folder(target, trust.folders)):
        raise ConfigError(f"{key} must be {_allowed(trust, target)}")
    module, _, name = target.rpartition(".")
    obj = getattr(sys.modules.get(module), name, None) or _locate(key, target)
    module = str(getattr(obj, "__module__", None))
    ok = f"{module}.".startswith(PACKAGES) or (target in NAMES and NAMES[target].module == module)
    ok = ok or own_folder(module, trust.folders) is not None
    ok = ok or (target in trust.names and module.split(".")[0] == target.split(".")[0])
    # An instance has the __module__ of its class, so only classes and plain functions are accepted.
    if not ok or not (inspect.isclass(obj) or inspect.isfunction(obj)):
        raise ConfigError(f"{key} leads to {module}.{getattr(obj, '__qualname__', '')} and must be {ALLOWED}")
    return obj


def _allowed(trust: Trust, target: str) -> str:
    if not trust.of_record:
        return f"{ALLOWED}; put your class into a .py file there and name it file.Class"
    how = f"repeat --config-dir or add allow={target}" if trust.command else f"add allow={target!r}"
    return f"{ALLOWED_IN_RECORD}; if the class is your own, {how}"


def own_folders(config_dirs: Sequence[str]) -> tuple[Path, ...]:
    """Folders with the user's own modules: the working folder, each --config-dir and its parent."""
    return tuple(dict.fromkeys((Path.cwd().resolve(), *beside(config_dirs))))


def beside(config_dirs: Sequence[str]) -> tuple[Path, ...]:
    """Each --config-dir and its parent."""
    given = [Path(folder).resolve() for folder in config_dirs]
    return tuple(dict.fromkeys(place for folder in given for place in (folder.parent, folder)))


def importable(folders: Sequence[Path]) -> None:
    """Let modules in the folders be imported; they come last on Python's path, so that they shadow nothing."""
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)


def own_folder(target: str, folders: tuple[Path, ...]) -> Path | None:
    """The folder on Python's path that holds the module that the first word names; None unless it is below one of
    `folders` and the module is no installed package. This package and what it names are nobody's own, also in a
    checkout in which somebody works."""
    name = target.split(".")[0]
    if name in PROVIDED:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    packages = list(spec.submodule_search_locations or [])
    files = [Path(place) for place in (packages or [spec.origin]) if place and os.path.isabs(place)]  # not "built-in"
    places = [file.resolve() for file in files if not is_installed(file)]
    return next((one.parent for one in places if any(one.is_relative_to(folder) for folder in folders)), None)


def is_installed(file: Path) -> bool:
    """Whether a file is Python's own, or of an installed package."""
    place, python = file.resolve(), (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))
    packaged = "site-packages" in {*file.parts, *place.parts}  # which may be a link to a folder of caches
    return packaged or any(place.is_relative_to(Path(top).resolve()) for top in python)


def _locate(key: str, target: str) -> Any:
    """The object, importing modules from the left; an error suggests the nearest existing name."""
    words = target.split(".")
    obj: Any = None
    for depth in range(1, len(words) + 1):
        name, attribute = ".".join(words[:depth]), words[depth - 1]
        if obj is not None and hasattr(obj, attribute):
            obj = getattr(obj, attribute)
            continue
        if obj is not None and not inspect.ismodule(obj):
            raise ConfigError(f"{key} must exist, but {'.'.join(words[: depth - 1])} has no {attribute}")
        try:
            obj = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:  # the user's module imports a module that does not exist
                raise ConfigError(f"{key} cannot be imported: {error}; install it") from error
            names = [n for n in dir(obj) if not n.startswith("_")] if obj is not None else []
            where = ".".join(words[: depth - 1]) or "Python"
            raise ConfigError(f"{key} must exist, but {where} has no {attribute}{nearest(attribute, names)}") from error
        except Exception as error:
            raise ConfigError(f"{key} cannot be imported: {type(error).__name__}: {error}") from error
    return obj
