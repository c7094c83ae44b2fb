"""A pytest plugin: each configuration is composed once per tree, then read from pytest's cache folder.

Composing a training takes 0.14 s of CPU, reading what was composed 1 ms, and the suites ask thousands of times for
some hundred configurations. What Hydra composes is a function of the yaml files, the overrides and its own version; a
change of any of them is another entry. Where the overrides are new, as those with the folder of a test are, only their
values are: what the yaml files give is a function of the overrides that choose groups, and has an entry of its own.
A configuration that has a folder of a test in its search path, and one that cannot be composed, are composed each time.
`--compose-always` switches it off.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hydra
import omegaconf
import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

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
        defaults_once(folder, ConfigLoaderImpl._compose_config_from_defaults_list)


def composed_once(compose: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Hydra's `load_configuration`, which reads from a folder what it composed before."""

    @functools.wraps(compose)
    def load(self: ConfigLoaderImpl, *args: Any, **options: Any) -> Any:
        words = [word for value in (*args, *options.values()) if isinstance(value, list) for word in value]
        places = _shipped((str(one.provider), str(one.path)) for one in self.config_search_path.get_path())
        if places is None or any("searchpath" in word for word in words):
            return compose(self, *args, **options)
        path = folder / _name(places, args, sorted(options.items()))
        found = _read(path)
        if found is None:
            found = compose(self, *args, **options)
            _write(path, found)
            return found
        found.hydra.runtime.cwd = os.getcwd()
        return found

    return load


def defaults_once(folder: Path, compose: Callable[..., DictConfig]) -> None:
    """Replace the two steps in which Hydra reads yaml files: it chooses the files, and merges them.

    Args:
        folder: of the entries.
        compose: `ConfigLoaderImpl._compose_config_from_defaults_list`, the second step.
    """

    def chosen_files(repo: Any, config_name: str, overrides_list: list[Override], **options: Any) -> Any:
        places = _shipped((one.provider, f"{one.scheme()}://{one.path}") for one in repo.get_sources())
        if places is None:
            return create_defaults_list(repo, config_name, overrides_list, **options)
        chosen, values = list[str](), list[Override]()
        for one in overrides_list:
            if not one.is_sweep_override():
                of_a_group = repo.group_exists(one.key_or_group) and not isinstance(one.value(), dict)
                chosen.append(str(one.input_line)) if of_a_group else values.append(one)
        path = folder / _name(places, config_name, chosen, sorted(options.items()))
        if (found := _read(path)) is not None:
            choices, cfg = found
            return SimpleNamespace(
                defaults=_Known(cfg), config_overrides=values, overrides=SimpleNamespace(known_choices=choices)
            )
        made = create_defaults_list(repo, config_name, overrides_list, **options)
        made.defaults = _Files(made.defaults)
        made.defaults.entry = path, made.overrides.known_choices
        return made

    @functools.wraps(compose)
    def merged(self: ConfigLoaderImpl, defaults: Any, repo: Any) -> DictConfig:
        if isinstance(defaults, _Known):
            return defaults.cfg
        cfg = compose(self, defaults=defaults, repo=repo)
        if isinstance(defaults, _Files):
            path, choices = defaults.entry
            _write(path, (choices, cfg))
        return cfg

    vars(config_loader_impl)["create_defaults_list"] = chosen_files
    ConfigLoaderImpl._compose_config_from_defaults_list = merged


class _Files(list[Any]):
    """Files to merge, and the entry of what they give."""

    entry: tuple[Path, dict[str, Any]]


class _Known:
    """In place of the files what they give."""

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg = cfg


def _shipped(sources: Iterator[tuple[str, str]]) -> list[tuple[str, str]] | None:
    """Where yaml files are looked for, with who says so; None if some are not the package's or Hydra's."""
    places = list(sources)
    shipped = ("pkg://hydra", "structured://", f"file://{conf_dir()}", str(conf_dir()))
    return places if all(path.startswith(shipped[:2]) or path in shipped for _, path in places) else None


def _name(*given: Any) -> str:
    """Of the entry of a composition."""
    return hashlib.sha256(repr((VERSIONS, _content(conf_dir()), *given)).encode()).hexdigest()


def _read(path: Path) -> Any:
    try:
        return pickle.loads(path.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def _write(path: Path, found: Any) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(pickle.dumps(found))
    part.replace(path)  # as a whole, for the other worker


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
