"""Which classes and functions a configuration may name in `_target_`.

A configuration is data that people send each other, and `_target_` makes it a program. Hydra forbids some names; this
allows only some, and judges the object that a name leads to, not the name: `diffusion_lab.data.os.system` is
`posix.system`. Allowed are this package, the optimizers of torch, the named parts of Lightning, and, for a
configuration composed on the command line, modules of the user's own: those in the working folder or in a folder
beside one given with --config-dir. A configuration read from a run folder or a checkpoint never widens the list.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from diffusion_lab.cli.errors import ConfigError, nearest

PACKAGES = ("diffusion_lab.", "torch.optim.")
NAMES = {
    "lightning.pytorch.Trainer": "lightning.pytorch.trainer.trainer",
    "lightning.pytorch.strategies.DDPStrategy": "lightning.pytorch.strategies.ddp",
    "lightning.pytorch.profilers.SimpleProfiler": "lightning.pytorch.profilers.simple",
    "lightning.pytorch.profilers.AdvancedProfiler": "lightning.pytorch.profilers.advanced",
    "lightning.pytorch.callbacks.DeviceStatsMonitor": "lightning.pytorch.callbacks.device_stats_monitor",
}
ALLOWED = "a class of diffusion_lab or torch.optim, or of a module of your own in the working folder"


def resolve(path: str, target: Any, own_folders: tuple[Path, ...] = ()) -> Any:
    """The class or function that `target` names.

    Args:
        path: where in the configuration it stands, for the message.
        target: the value of `_target_`.
        own_folders: folders whose modules are the user's own, and trusted.

    Raises:
        ConfigError: the name leads nowhere, or to something that is not allowed. A module outside the list is not
            even imported.
    """
    key = f"{path}._target_={target}"
    if not isinstance(target, str) or "." not in target or not all(p.isidentifier() for p in target.split(".")):
        raise ConfigError(f"{key} must be a dotted name; allowed is {ALLOWED}")
    if target.startswith("diffusion_lab.cli.") or not (_listed(target) or _own_module(target, own_folders)):
        raise ConfigError(f"{key} must be {ALLOWED}; put your class into a .py file there and name it file.Class")
    found = _locate(key, target)
    module = str(getattr(found, "__module__", None))
    ok = f"{module}.".startswith(PACKAGES) or NAMES.get(target) == module or _own_module(f"{module}.x", own_folders)
    # An instance has its class's __module__, so only classes and plain functions may pass.
    if not ok or not (inspect.isclass(found) or inspect.isfunction(found)):
        raise ConfigError(f"{key} leads to {module}.{getattr(found, '__qualname__', '')} and must be {ALLOWED}")
    return found


def own_folders(config_dirs: list[str]) -> tuple[Path, ...]:
    """Folders whose modules are the user's own: the working folder, and what holds a --config-dir."""
    return tuple({Path.cwd().resolve(), *(Path(folder).resolve().parent for folder in config_dirs)})


def _listed(target: str) -> bool:
    return target.startswith(PACKAGES) or target in NAMES


def _own_module(target: str, folders: tuple[Path, ...]) -> bool:
    """Whether the first word names a module that lies in one of the folders, and not among installed packages."""
    try:
        spec = importlib.util.find_spec(target.split(".")[0])
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
    files = [Path(place) for place in places if place and os.path.isabs(place)]  # "built-in" and "frozen" are no files
    return any(_inside(file.resolve(), folders) for file in files)


def _inside(place: Path, folders: tuple[Path, ...]) -> bool:
    python = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib")}
    installed = "site-packages" in place.parts or any(place.is_relative_to(Path(p).resolve()) for p in python)
    return not installed and any(place.is_relative_to(folder) for folder in folders)


def _locate(key: str, target: str) -> Any:
    """The object, importing modules from the left; every attribute error names what there is."""
    words = target.split(".")
    found: Any = None
    for depth in range(1, len(words) + 1):
        name, attribute = ".".join(words[:depth]), words[depth - 1]
        if found is not None and hasattr(found, attribute):
            found = getattr(found, attribute)
            continue
        if found is not None and not inspect.ismodule(found):
            raise ConfigError(f"{key} must exist, but {'.'.join(words[: depth - 1])} has no {attribute}")
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:  # the user's module exists and imports something that does not
                raise ConfigError(f"{key} cannot be imported: {error}; install it") from error
            names = [n for n in dir(found) if not n.startswith("_")] if found is not None else []
            where = ".".join(words[: depth - 1]) or "Python"
            raise ConfigError(f"{key} must exist, but {where} has no {attribute}{nearest(attribute, names)}") from error
        except Exception as error:
            raise ConfigError(f"{key} cannot be imported: {type(error).__name__}: {error}") from error
    return found
