"""A composition is stored once, and is forgotten when a yaml file changes."""

import os

import pytest

from diffusion_lab.cache_folder import VARIABLE
from diffusion_lab.cli import stored_compositions
from diffusion_lab.cli.stored_compositions import FOLDER, stored


@pytest.fixture
def conf(tmp_path, monkeypatch):
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "a.yaml").write_text("b: 1")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(stored_compositions, "conf_dir", lambda: folder)
    monkeypatch.setattr(stored_compositions, "_fingerprint", stored_compositions._fingerprint.__wrapped__)
    return folder


def test_it_is_composed_once_until_a_file_changes(conf, tmp_path):
    assert stored(["a=1"], lambda: ({"b": 1.5}, {"a": "1"})) == ({"b": 1.5}, {"a": "1"})
    assert stored(["a=1"], lambda: pytest.fail("composed again")) == ({"b": 1.5}, {"a": "1"})
    os.utime(conf / "a.yaml", (0, 0))
    assert stored(["a=1"], lambda: ({"b": 2}, {})) == ({"b": 2}, {})
    assert len(list((tmp_path / "cache" / FOLDER).iterdir())) == 1  # that of the old files is gone


def test_what_json_changes_and_what_cannot_be_written_is_composed_each_time(conf, tmp_path):
    assert stored(["k"], lambda: ({1: 2}, {})) == ({1: 2}, {})
    assert stored(["none"], lambda: None) is None
    assert not (tmp_path / "cache").exists()
    (tmp_path / "cache").touch()
    assert stored(["a=1"], lambda: ({"b": 1}, {})) == ({"b": 1}, {})
