"""What is read from the cache of compositions is what Hydra composes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf

from diffusion_lab.cli.hydra_version import initialized
from tests.composed_once import composed_once, parsed_once

WORDS = ["method=clts", "seed=3"]
HYDRAS = getattr(ConfigLoaderImpl.load_configuration, "__wrapped__", ConfigLoaderImpl.load_configuration)


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
    assert whole(words=["method=p2", "seed=3"]) != first and len(composed) == 2


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


def test_a_text_is_parsed_once_and_what_a_caller_changes_is_not_kept(tmp_path: Path) -> None:
    parses: list[str] = []
    parsed = parsed_once(lambda file: parses.append(file.read()) or OmegaConf.create(parses[-1]))
    file = tmp_path / "some.yaml"
    for text in ("a: 1", "a: 1", "a: 2"):
        file.write_text(text)
        with file.open() as opened:
            found = parsed(opened)
        assert found == OmegaConf.create(text)
        found.a = 3
    assert parses == ["a: 1", "a: 2"]


def test_references_in_defaults_and_errors_in_yaml_are_as_without(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "train.yaml").write_text("defaults: [{kind: b}, 'part/${kind}']\n")
    (tmp_path / "kind").mkdir()
    for name in "ab":
        (tmp_path / "kind" / f"{name}.yaml").write_text("{}")
        (tmp_path / "part" / f"{name}.yaml").write_text(f"it: {name}\n")
    assert "it: b" in whole(tmp_path, []) and "it: a" in whole(tmp_path, ["kind=a"])
    (tmp_path / "part" / "a.yaml").write_text("it: [\n")
    with pytest.raises(Exception, match=r"part/a\.yaml"):
        whole(tmp_path, ["kind=a"])


ON_ONE_CHOICE = [  # the sampler's option with values of all kinds
    [
        "sampler=logit_normal",
        "sampler.std=0.5",
        "+sampler.more={a: [1, 2]}",
        "~callbacks.generation",
        "hydra.verbose=true",
    ],
    [
        "seed=3",
        "sampler=logit_normal",
        "hydra.run.dir=x",
        "++sampler.std=null",
        "name=${seed}",
        "callbacks.ema.decays=[0.9]",
    ],
]


def test_values_are_set_in_what_the_groups_compose_as_hydra_sets_them(composed: list[Any], tmp_path: Path) -> None:
    found = [whole(words=words) for words in ON_ONE_CHOICE]
    assert len(composed) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "load_configuration", HYDRAS)
        assert found == [whole(words=words) for words in ON_ONE_CHOICE]


@pytest.mark.parametrize("word", ["sampler.st=1", "sampler.std=1,2", "~sampler.st", "+sampler.std=1"])
def test_what_cannot_be_set_is_hydras_own_error(composed: list[Any], word: str) -> None:
    said = []
    for compose_ in (ConfigLoaderImpl.load_configuration, HYDRAS):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Exception) as error:
            patch.setattr(ConfigLoaderImpl, "load_configuration", compose_)
            whole(words=["sampler=logit_normal", word])
        said.append((type(error.value), str(error.value)))
    assert said[0] == said[1]
