"""A pytest plugin: each configuration is composed once per tree, then read from pytest's cache folder.

Composing a training takes 0.14 s of CPU, reading what was composed 1 ms, and the suites ask thousands of times for
some hundred configurations. What Hydra composes is a function of the yaml files, the overrides and its own version; a
change of any of them is another entry. A configuration that has a folder of a test in its search path, and one that
cannot be composed, are composed each time.

In a fresh clone the options of groups are composed once, and values are set in a copy, as Hydra sets them. Each text
of YAML is parsed once, and a map that Hydra makes of every node of a tree of defaults, for references in them, is made
only where there are some: 40 % of the time of a composition. `--compose-always` switches all of it off.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import omegaconf
import pytest
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.conf_folder import conf_dir

VERSIONS = (hydra.__version__, omegaconf.__version__)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compose-always", action="store_true", help="compose every configuration each time")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--compose-always"):
        return
    OmegaConf.load = staticmethod(parsed_once(OmegaConf.load))
    defaults_list._create_interpolation_map = where_needed(defaults_list._create_interpolation_map)
    cache = getattr(config, "cache", None)  # without `-p no:cacheprovider`
    if cache is not None:
        top = cache.mkdir("compositions")
        folder = top / _content(conf_dir())
        for other in set(top.iterdir()) - {folder}:  # of other yaml files: 50 MB each
            shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        ConfigLoaderImpl.load_configuration = composed_once(ConfigLoaderImpl.load_configuration, folder)


def parsed_once(parse: Callable[..., Any]) -> Callable[..., Any]:
    """`OmegaConf.load`, which parses each text of an open file once."""
    parsed: dict[str, bytes] = {}

    def load(file: Any) -> Any:
        if not hasattr(file, "seek"):
            return parse(file)
        text = file.read()
        if text not in parsed:
            file.seek(0)  # Hydra's errors name the file
            parsed[text] = pickle.dumps(parse(file))
        return pickle.loads(parsed[text])

    return load


def where_needed(make: Callable[..., Any]) -> Callable[..., Any]:
    """Hydra's map of choices for the references in a list of defaults; empty where the list has none."""

    def made(overrides: Any, defaults: Any, self_added: bool) -> Any:
        needed = any(one.is_interpolation() for one in defaults)
        return make(overrides, defaults, self_added) if needed else OmegaConf.create()

    return made


def composed_once(compose: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Hydra's `load_configuration`, which reads from a folder what it composed before."""

    @functools.wraps(compose)
    def load(self: ConfigLoaderImpl, *args: Any, **options: Any) -> Any:
        entry = _entry(self, args, options)
        if entry is None:
            return compose(self, *args, **options)
        path = folder / entry
        try:
            found = pickle.loads(path.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            found = _with_values(load, self, args, options) or compose(self, *args, **options)
            part = path.with_name(f"{entry}.{os.getpid()}")
            part.write_bytes(pickle.dumps(found))
            part.replace(path)  # as a whole, for the other worker
            return found
        found.hydra.runtime.cwd = os.getcwd()
        return found

    return load


def _with_values(
    load: Callable[..., Any], loader: ConfigLoaderImpl, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """What `load` composes of the options of groups, with the values set in it; None where the words have no values or
    do more than set some, or where Hydra has something to say."""
    given = dict(zip(("config_name", "overrides", "run_mode"), args, strict=False)) | options
    try:
        words = OverridesParser.create().parse_overrides(given["overrides"])
        if any(one.is_sweep_override() or one.key_or_group.startswith("hydra.job") for one in words):
            return None
        exists = loader.repository.group_exists
        groups = [one for one in words if exists(one.key_or_group) and not isinstance(one.value(), dict)]
        if len(groups) == len(words):
            return None
        cfg = load(loader, **given | {"overrides": [one.input_line for one in groups]})
        loader._apply_overrides_to_config([one for one in words if one not in groups], cfg)
        own = [one for one in words if not one.is_hydra_override()]
        hydras = [one for one in words if one.is_hydra_override()]
        for kept, ours in ((cfg.hydra.overrides.task, own), (cfg.hydra.overrides.hydra, hydras)):
            kept.clear()
            kept.extend([one.input_line for one in ours])
        form = cfg.hydra.job.config.override_dirname
        cfg.hydra.job.override_dirname = get_overrides_dirname(own, form.exclude_keys, form.item_sep, form.kv_sep)
    except (HydraException, OmegaConfBaseException):
        return None
    return cfg


def _entry(loader: ConfigLoaderImpl, args: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """The name of a composition; None if it reads files that are not the package's or Hydra's."""
    places = [(one.provider, one.path) for one in loader.config_search_path.get_path()]
    words = [word for value in (*args, *options.values()) if isinstance(value, list) for word in value]
    shipped = ("pkg://hydra", "structured://", f"file://{conf_dir()}", str(conf_dir()))
    if not all(str(path).startswith(shipped[:2]) or path in shipped for _, path in places):
        return None
    if any("searchpath" in word for word in words):
        return None
    text = repr((VERSIONS, _content(conf_dir()), places, args, sorted(options.items())))
    return hashlib.sha256(text.encode()).hexdigest()


def _content(folder: Path) -> str:
    """A hash of the yaml files."""
    return _of_stamps(tuple(sorted(_stamps(folder))))


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Path, time of change and size of each; it is asked thousands of times, and pathlib would take twice as long."""
    for place, _, names in os.walk(folder):
        for path in (f"{place}/{name}" for name in names if name.endswith(".yaml")):
            status = os.stat(path)
            yield path, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=4)
def _of_stamps(stamps: tuple[tuple[Any, ...], ...]) -> str:
    found = hashlib.sha256()
    for path, *_ in stamps:
        found.update(f"{path}\0".encode() + Path(path).read_bytes())
    return found.hexdigest()
