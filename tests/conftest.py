"""What all tests share."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest_plugins = ["tests.composed_once"]
gc.disable()  # until all tests are imported: a million objects, none of them garbage


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """On several processes, of which each begins with its share of the items: a share of the slow tests in their own
    order, then quick ones, of which the process that has none left takes from another, so that all end together."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    yield
    if hasattr(config, "workerinput"):
        there, apart = set(items), set(slow)
        slow, quick = [item for item in slow if item in there], [item for item in items if item not in apart]
        first = {item.path.parent: i for i, item in reversed([*enumerate(quick)])}
        quick.sort(key=lambda item: first[item.path.parent])  # a folder's tests share fixtures and caches
        count = config.workerinput["workercount"]
        shares = [[of[len(of) * i // count : len(of) * (i + 1) // count] for of in (slow, quick)] for i in range(count)]
        items[:] = [item for share in shares for of in share for item in of]


def pytest_collection_finish() -> None:
    """Leave these out of every later look for garbage; in a forked process a look would copy each page it reads."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def settings_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key that signs runs is not the user's, also in processes that tests start; on a slow machine no line names a
    wait in what a test compares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diffusion_lab.progress.NAMED_AFTER", 600.0)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def modules_of_the_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test imported from a temporary folder, and the folder on Python's path; the next test may
    have another module of that name."""
    before, path = set(sys.modules), sys.path[:]
    yield
    sys.path[:] = path
    base = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - before:
        if _file(name).startswith(base):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _no_waits_of_other_tests() -> None:
    """A trainer that a test has started and not ended still waits for its first step, and would be named again."""
    if "diffusion_lab.progress" in sys.modules:
        sys.modules["diffusion_lab.progress"]._waits.clear()


@contextmanager
def _root_logger_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Restore the root logger, which a command sets up in the test's process as Hydra's configuration says."""
    with _root_logger_restored():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """The same for a command that a fixture of several tests runs, which is set up before those of each test."""
    if fixturedef.scope == "function":
        return (yield)
    with _root_logger_restored():
        return (yield)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; the import path is restored."""
    monkeypatch.chdir(tmp_path)
    path = sys.path[:]
    yield tmp_path
    sys.path[:] = path


def _file(name: str) -> str:
    return str(Path(getattr(sys.modules[name], "__file__", None) or "."))
