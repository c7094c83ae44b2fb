"""What is read from the cache of compositions is what Hydra composes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hydra import compose
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import OmegaConf

from diffusion_lab.cli.hydra_version import initialized
from tests.composed_once import composed_once, defaults_once

WORDS = ["method=clts", "seed=3"]


def unwrapped(function: Any) -> Any:
    return getattr(function, "__wrapped__", function)


HYDRAS = unwrapped(ConfigLoaderImpl.load_configuration)
MERGED = unwrapped(ConfigLoaderImpl._compose_config_from_defaults_list)


@pytest.fixture
def composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of Hydra's own composition, behind a cache in an empty folder."""
    calls: list[tuple[Any, ...]] = []

    def counted(*given: Any, **options: Any) -> Any:
        calls.append(given)
        return HYDRAS(*given, **options)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", composed_once(counted, tmp_path))
    return calls


def whole(folder: Path | None = None, words: list[str] = WORDS) -> str:
    with initialized(folder):
        return OmegaConf.to_yaml(compose("train", overrides=words, return_hydra_config=True))


def test_it_is_composed_once_and_equal_each_time_also_from_another_folder(
    composed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = whole()
    assert whole() == first and len(composed) == 1
    here = os.getcwd()
    monkeypatch.chdir(tmp_path)
    assert whole() == first.replace(f"cwd: {here}", f"cwd: {tmp_path}") and len(composed) == 1
    assert whole(words=["method=clts", "seed=4"]) != first and len(composed) == 2


def test_other_yaml_files_are_composed_each_time(composed: list[Any], tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for number in (1, 2):
        (tmp_path / "conf" / "train.yaml").write_text(f"number: {number}\n")
        assert f"number: {number}" in whole(tmp_path / "conf", [])
    assert len(composed) == 2


def test_what_a_test_changes_is_not_kept(composed: list[Any]) -> None:
    with initialized():
        cfg = compose("train", overrides=WORDS)
        cfg.seed = 99
        assert compose("train", overrides=WORDS).seed == 3 and len(composed) == 1


SEVERAL = {
    "values": [["seed=3", "network.base_channels=8"], ["seed=4", "+callbacks.ema.new=1"], ["~callbacks.generation"]],
    "groups": [["sampler=uniform", "seed=3"], ["+metric@metrics.more=fid"], ["~annealing"], ["method=clts"]],
}


def test_values_are_set_in_what_the_same_groups_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to what Hydra composes; the files are read once for all values, and again for each choice of groups."""
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", HYDRAS)
    monkeypatch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", MERGED)
    monkeypatch.setattr(config_loader_impl, "create_defaults_list", defaults_list.create_defaults_list)
    expected = {name: [whole(words=words) for words in cases] for name, cases in SEVERAL.items()}
    merged: list[Any] = []
    defaults_once(tmp_path, lambda self, **given: merged.append(0) or MERGED(self, **given))
    for name, read in (("values", 1), ("groups", 4)):
        merged.clear()
        assert [whole(words=words) for _ in range(2) for words in SEVERAL[name]] == 2 * expected[name]
        assert len(merged) == read
    for wrong in ("sampler=none_such", "network.none_such=1", "~none_such", "+sampler=uniform"):
        for _ in range(2):
            with pytest.raises((ConfigCompositionException, MissingConfigException)):
                whole(words=[wrong])
