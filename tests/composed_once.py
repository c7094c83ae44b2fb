"""A pytest plugin: each configuration is composed once per tree, then read from pytest's cache folder.

Composing a training takes 0.14 s of CPU, reading what was composed 1 ms, and the suites ask thousands of times for
some hundred configurations. What Hydra composes is a function of the yaml files, the overrides and its own version; a
change of any of them is another entry. A configuration that has a folder of a test in its search path, and one that
cannot be composed, are composed each time. `--compose-always` switches it off.
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
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from diffusion_lab.cli.conf_folder import conf_dir

VERSIONS = (hydra.__version__, omegaconf.__version__)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compose-always", action="store_true", help="compose every configuration each time")


def pytest_configure(config: pytest.Config) -> None:
    cache = getattr(config, "cache", None)  # without `-p no:cacheprovider`
    if not config.getoption("--compose-always") and cache is not None:
        top = cache.mkdir("compositions")
        folder = top / _content(conf_dir())
        for other in set(top.iterdir()) - {folder}:  # of other yaml files: 50 MB each
            shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        ConfigLoaderImpl.load_configuration = composed_once(ConfigLoaderImpl.load_configuration, folder)


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
            found = compose(self, *args, **options)
            part = path.with_name(f"{entry}.{os.getpid()}")
            part.write_bytes(pickle.dumps(found))
            part.replace(path)  # as a whole, for the other worker
            return found
        found.hydra.runtime.cwd = os.getcwd()
        return found

    return load


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
