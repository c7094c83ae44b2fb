"""A single run is composed once, and only where the words leave no doubt that it is one."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra

from diffusion_lab.cli.app import MAY_SET_THE_MODE, composed_once, is_single_run
from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from diffusion_lab.cli.main import main


@pytest.mark.parametrize(
    "words",
    [[], ["max_steps=3"], ["+a=1", "~logger"], ["sampler=uniform", "sampler.std=2"], ["seed=1", "hydra.run.dir=run"]],
)
def test_settings_are_those_of_a_single_run(words: list[str]) -> None:
    assert is_single_run(words)


@pytest.mark.parametrize("word", ["-m", "--cfg", "experiment=demo", "+experiment=x", "hydra.mode=RUN", "hydra/job=x"])
def test_other_words_may_set_the_mode(word: str) -> None:
    assert not is_single_run(["seed=1", word])


def test_only_experiments_of_the_package_set_the_mode() -> None:
    """What `is_single_run` takes for granted."""
    setting = {
        path.relative_to(conf_dir()).parts[0]
        for path in conf_dir().rglob("*.yaml")
        if "mode" in (yaml_file(path).get("hydra") or {})
    }
    assert setting == {"experiment"} and setting <= set(MAY_SET_THE_MODE)


@pytest.mark.parametrize(("words", "asked"), [(["max_steps=abc"], 0), (["max_steps=abc", "hydra.verbose=false"], 1)])
def test_hydra_asks_for_the_mode_only_where_it_may_be_set(
    words: list[str], asked: int, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    get_mode = Hydra.get_mode
    monkeypatch.setattr(Hydra, "get_mode", lambda *a, **k: modes.append(1) or get_mode(*a, **k))
    assert main(["train", *words]) == 2
    assert len(modes) == asked


def test_afterwards_hydra_and_the_collector_are_as_before() -> None:
    before = Hydra.get_mode
    with pytest.raises(ValueError, match="stop"), composed_once(["seed=1"]):
        assert not gc.isenabled() and Hydra.get_mode is not before
        raise ValueError("stop")
    assert gc.isenabled() and Hydra.get_mode is before


def test_the_collector_runs_while_a_run_trains(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("diffusion_lab.cli.commands.train.run", lambda *_: seen.append(gc.isenabled()))
    assert main(["train", "max_steps=1"]) == 0
    assert seen == [True]
