"""One folder of caches, which one variable names, and a home for a user without one."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from diffusion_lab.cache_folder import cache_folder, home_folder
from diffusion_lab.data import ImageFolder


@pytest.fixture
def environment(monkeypatch, tmp_path):
    for name in ("DIFFUSION_LAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return monkeypatch


def test_the_variable_names_the_folder_of_all_caches(environment, tmp_path):
    assert cache_folder() == tmp_path / "home" / ".cache" / "diffusion-lab" == ImageFolder("x", 8).cache_dir
    environment.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "diffusion-lab" == ImageFolder("x", 8).cache_dir
    environment.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" == ImageFolder("x", 8).cache_dir


@pytest.mark.parametrize("prepared", ["nothing", "a link", "a folder of all"])
def test_a_user_without_a_home_has_a_private_one(prepared, environment, tmp_path, caplog):
    def nobody(number: int) -> None:
        raise KeyError(number)

    environment.delenv("HOME")
    environment.setattr(pwd, "getpwuid", nobody)
    place = tmp_path / f"diffusion-lab-{os.getuid()}"
    (tmp_path / "victim").mkdir()
    if prepared == "a link":
        place.symlink_to(tmp_path / "victim")
    if prepared == "a folder of all":
        place.mkdir()
        place.chmod(0o777)
    home = home_folder()
    assert (home == place) is (prepared == "nothing")
    assert home.parent == tmp_path and not home.is_symlink() and home.stat().st_mode & 0o777 == 0o700
    assert Path.home() == home == home_folder() and cache_folder() == home / ".cache" / "diffusion-lab"
    (said,) = caplog.messages
    assert said == f"this user has no home folder, so {home} is used; set HOME, or DIFFUSION_LAB_CACHE for the caches"
