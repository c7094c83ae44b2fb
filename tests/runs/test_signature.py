"""Whose run.json is: signed by this user, and unchanged since."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.runs import signature
from diffusion_lab.runs.record import read_record, write_record
from diffusion_lab.runs.signature import is_own, key_file, signed
from tests.harness import Child

RECORD = {"config": {"seed": 0, "bins": (1, 2), "top": float("inf"), "by": {2: "b", 10: "a"}}, "overrides": ["seed=0"]}


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the key of a user who has none yet will be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "diffusion-lab" / "run.key"


@pytest.fixture
def run(key: Path, tmp_path: Path) -> Path:
    """A run folder whose record is signed."""
    folder = tmp_path / "run"
    write_record(folder, RECORD, own=True)
    return folder


def read(folder: Path) -> dict[str, Any]:
    return read_record(folder, "run")


def test_the_key_is_the_users_alone_and_in_no_run(run: Path, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(key.parent) == ["run.key"]  # nothing temporary is left
    assert key.read_bytes().hex() not in (run / "run.json").read_text()
    before = key.read_bytes()
    write_record(run, RECORD, own=True)
    assert key.read_bytes() == before


def test_a_run_is_ones_own_where_it_was_written_moved_and_copied(run: Path, tmp_path: Path) -> None:
    assert is_own(read(run))
    assert is_own(read(shutil.copytree(run, tmp_path / "copy")))
    assert is_own(read(run.rename(tmp_path / "moved")))


def test_numbers_of_any_size_are_signed_as_they_are_read(key: Path, tmp_path: Path) -> None:
    for value in (2**63, 2**64 - 1, 2**64, 2**70, -(2**70), 10**400):
        write_record(tmp_path, RECORD | {"x": value}, own=True)
        assert is_own(read(tmp_path)), value


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a value": lambda record: record["config"].update(seed=1),
    "a new key": lambda record: record.update(more=1),
    "a key less": lambda record: record.pop("overrides"),
    "an override": lambda record: record["overrides"].append("x=/etc"),
    "no signature": lambda record: record.pop("signature"),
    "a signature that is none": lambda record: record.update(signature=["x"]),
    "a signature beyond ASCII": lambda record: record.update(signature="é" * 64),
    "a lone surrogate": lambda record: record.update(signature="\ud800"),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_record_is_not(case: str, run: Path) -> None:
    record = read(run)
    EDITS[case](record)
    (run / "run.json").write_text(json.dumps(record))
    assert not is_own(read(run))


def test_one_that_was_written_without_a_word_of_the_users_is_not(key: Path, tmp_path: Path) -> None:
    write_record(tmp_path / "theirs", RECORD, own=False)
    assert not is_own(read(tmp_path / "theirs")) and not key.exists()


def test_with_another_users_key_it_is_not(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    assert not is_own(read(run)) and not (tmp_path / "another").exists()  # asking makes no key
    signed(RECORD)
    assert not is_own(read(run))


def test_without_the_key_it_is_not_and_a_new_key_does_not_make_it_so(run: Path, key: Path) -> None:
    key.unlink()
    assert not is_own(read(run))
    signed(RECORD)
    assert key.exists() and not is_own(read(run))


def test_a_key_that_others_may_use_counts_as_none(run: Path, key: Path) -> None:
    for path, mode in ((key, 0o640), (key, 0o602), (key.parent, 0o770), (key.parent, 0o702)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not is_own(read(run)) and "signature" not in signed(RECORD)
        path.chmod(before)
        assert is_own(read(run))


def test_a_key_that_is_no_key_counts_as_none(run: Path, key: Path) -> None:
    good, other = key.read_bytes(), key.with_name("other")
    for content in (b"", good[:-1], good + b"x"):
        key.write_bytes(content)
        assert not is_own(read(run)) and "signature" not in signed(RECORD) and key.read_bytes() == content
    key.unlink()
    os.mkfifo(key, 0o600)
    assert not is_own(read(run)) and "signature" not in signed(RECORD)
    key.unlink()
    other.write_bytes(good)
    other.chmod(0o600)
    key.symlink_to(other)
    assert not is_own(read(run)) and "signature" not in signed(RECORD)


def test_without_a_place_for_a_key_nothing_is_signed_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert "signature" not in signed(RECORD) and not is_own(signed(RECORD))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # which the specification says to ignore
    monkeypatch.setattr(Path, "home", lambda: Path(os.devnull))
    assert key_file() == Path(os.devnull, ".config", "diffusion-lab", "run.key") and "signature" not in signed(RECORD)

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert key_file() is None and "signature" not in signed(RECORD)


def test_processes_that_make_the_key_at_once_agree(key: Path, tmp_path: Path) -> None:
    begin = tmp_path / "begin"

    def sign(number: int) -> None:
        while not begin.exists():
            pass
        (tmp_path / f"{number}.json").write_text(json.dumps(signed(RECORD)))

    children = [Child(lambda number=number: sign(number), tmp_path / f"log{number}") for number in range(4)]
    begin.touch()
    for child in children:
        child.succeed()
    assert len({(tmp_path / f"{number}.json").read_text() for number in range(4)}) == 1
    assert is_own(json.loads((tmp_path / "0.json").read_text())) and os.listdir(key.parent) == ["run.key"]


def test_a_key_that_another_process_made_meanwhile_is_used(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, link = b"t" * 32, os.link

    def late(source: Path, target: Path) -> None:
        target.write_bytes(theirs)
        target.chmod(0o600)
        link(source, target)

    monkeypatch.setattr(signature.os, "link", late)
    record = signed(RECORD)
    assert key.read_bytes() == theirs and is_own(json.loads(json.dumps(record)))
    assert os.listdir(key.parent) == ["run.key"]


@pytest.mark.parametrize("content", ["[" * 900 + "]" * 900, "1e999", '{"a": NaN}', '"\\ud800"'])
def test_any_content_has_an_answer(content: str, key: Path, tmp_path: Path) -> None:
    signed(RECORD)
    record = json.loads(f'{{"config": {content}, "signature": "{"0" * 64}"}}')
    assert not is_own(record)
    assert is_own(json.loads(json.dumps(signed(record))))
