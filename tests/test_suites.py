"""The suites hold each test once, and git says whether the pages' suite is due."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from _pytest.mark.expression import Expression

from tests import suites
from tests.conftest import pytest_collection_modifyitems

OWN = ("slow", "pages", "learning", "exhaustive")


def test_every_mark_of_a_suite_is_known_to_pytest() -> None:
    lines = tomllib.loads((suites.ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert {line.partition(":")[0] for line in lines} == set(OWN)


@pytest.mark.parametrize("marks", [set(some) for n in range(5) for some in itertools.combinations(OWN, n)])
def test_a_test_with_any_marks_is_in_one_suite(marks: set[str]) -> None:
    where = [
        name
        for name, suite in suites.SUITES.items()
        if Expression.compile(suite.marks).evaluate(lambda mark, **_: mark in marks)
    ]
    assert len(where) == 1, (marks, where)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files of pages, which the suite has seen, and a suite whose runs are written down."""
    for path in suites.OF_PAGES:
        place = tmp_path / path if "." in path else tmp_path / path / "file"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites, "SEEN", tmp_path / "seen.json")
    (tmp_path / "seen.json").write_text(json.dumps(suites.trees()))
    return tmp_path


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=place, check=True)


def commit(place: Path) -> None:
    git(place, "add", "-A")
    git(place, "commit", "-qm", "x")


def test_the_pages_are_due_where_one_of_their_files_changed(repository: Path) -> None:
    assert suites.pages_are_seen()
    (repository / "package.py").write_text("")
    commit(repository)
    assert suites.pages_are_seen()  # whatever other files change
    (repository / "docs" / "file").write_text("changed")
    assert not suites.pages_are_seen()  # not committed
    commit(repository)
    assert not suites.pages_are_seen()
    (repository / "seen.json").write_text(json.dumps(suites.trees()))
    assert suites.pages_are_seen()


def test_without_git_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    assert suites.trees() is None and not suites.pages_are_seen()


@pytest.mark.parametrize(
    ("words", "code", "seen", "ran", "said"),
    [
        ([], 0, True, ["quick", "slow"], ["pages", "learning", "exhaustive"]),
        ([], 0, False, ["quick", "slow", "pages"], ["learning", "exhaustive"]),
        ([], 1, True, ["quick", "slow"], []),
        (["learning"], 0, True, ["learning"], []),
        (["pages"], 0, False, ["pages"], []),
    ],
)
def test_what_runs_and_what_is_said_not_to_have_run(
    words: list[str],
    code: int,
    seen: bool,
    ran: list[str],
    said: list[str],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not seen:
        (repository / "seen.json").unlink()
    runs: list[str] = []
    monkeypatch.setattr(suites, "run", lambda *names: runs.extend(names) or code)
    assert suites.main(words) == code and runs == ran
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[3].rstrip(":") for line in lines) == sorted(said)
    assert suites.pages_are_seen() == (seen or words == ["pages"])


@pytest.mark.parametrize(
    ("code", "stale", "says"), [(0, True, False), (1, True, True), (1, False, False), (2, True, False)]
)
def test_a_suite_whose_tests_fail_writes_its_stale_pages(
    code: int, stale: bool, says: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        tests = "pytest" in command
        return subprocess.CompletedProcess(command, code if tests else 0, "written: docs/a.md\n" if stale else "")

    monkeypatch.setattr(subprocess, "run", run)
    assert suites.run("quick") == code
    said = capsys.readouterr().out
    assert ("written: docs/a.md" in said) == ("run `python -m tests.suites quick`" in said) == says


@pytest.mark.parametrize("forbidden", [True, False])
def test_the_processes_of_the_tests_keep_what_they_compile(forbidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the sources, or in the tests' cache where the environment forbids that."""
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if forbidden:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)"
    done = subprocess.run([sys.executable, "-c", code], env=suites.surroundings(), capture_output=True, text=True)
    assert done.stdout == f"False {suites.ROOT / '.pytest_cache' / 'bytecode' if forbidden else None}\n"


class Item(NamedTuple):
    name: str
    path: Path

    def get_closest_marker(self, name: str) -> bool:
        return self.name.startswith(name)


def test_each_of_two_processes_begins_with_slow_tests_and_ends_with_quick_ones_of_few_folders() -> None:
    slow = [Item(f"slow{i}", Path("x/test.py")) for i in range(4)]
    quick = [Item(f"quick{i}", Path(f"{'ab'[i % 2]}/test.py")) for i in range(4)]
    items: list[Any] = [*quick, *slow]
    ordering = pytest_collection_modifyitems(cast(Any, SimpleNamespace(workerinput={"workercount": 2})), items)
    next(ordering)
    items[:] = [slow[2], slow[0], slow[3], *quick]  # shuffled, and without what is deselected
    assert list(ordering) == []
    assert [item.name for item in items] == ["slow0", "quick0", "quick2", "slow2", "slow3", "quick1", "quick3"]
