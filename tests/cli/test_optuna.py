"""A sweeper that searches needs the value of each run: it has one, or nothing starts. The page's study, pruned."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.checks.sweeper import searching
from diffusion_lab.cli.compose_errors import _extra
from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.validate import check, examine
from tests.cli import searching_sweeper
from tests.cli.searching_sweeper import PLACE
from tests.harness import Child

PAGE = Path(__file__).parents[2] / "docs" / "optuna.md"
SMALL = [
    *("scale=smoke", "network.base_channels=8", "trainer.accelerator=cpu", "metrics=none", "threads=1"),
    *("max_steps=6", "snapshot_every=2", "checkpoint_every=2", "log_every=2", "dataset.val_images=32"),
]


def hydra(target: str, option: str, **more: object) -> OmegaConf:
    return OmegaConf.create(
        {"sweeper": {"_target_": target, **more}, "runtime": {"choices": {"hydra/sweeper": option}}}
    )


def search(folder: Path, *words: str) -> Child:
    def work() -> None:
        os.chdir(folder)
        searching_sweeper.install()
        raise SystemExit(main(["train", "-m", "hydra/sweeper=searching", "name=search", *words]))

    return Child(work, folder / "log")


def test_a_sweeper_searches_unless_it_is_known_not_to() -> None:
    searching_sweeper.install()
    basic = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
    ours = "hydra_plugins.diffusion_lab_sweeper"
    assert searching(hydra(basic, "basic")) is None
    assert searching(hydra(f"{ours}.listed.ListedSweeper", "listed")) is None
    assert searching(hydra(f"{ours}.products.ProductsSweeper", "products")) is None
    assert searching(hydra(f"{ours}.race.RaceSweeper", "race")) is None
    assert searching(hydra(f"{PLACE}.Searching", "searching")) == "hydra/sweeper=searching"
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.direction=\[minimize,maximize\] must be one direction"):
        searching(hydra(f"{PLACE}.Searching", "searching", direction=["minimize", "maximize"]))


def test_a_search_without_objective_is_refused_with_the_names_to_choose_from(composed) -> None:
    cfg = composed()
    assert check(cfg) == []  # without a sweeper, or with one that only starts jobs
    (error,) = examine(cfg, searching="hydra/sweeper=optuna")[0]
    assert str(error) == (
        "objective=null must be what hydra/sweeper=optuna searches by, one of val/loss, metrics/fd1k_digits, "
        f"{str(error).partition('fd1k_digits, ')[2]}"
    )
    assert str(error).endswith("use objective=val/loss")
    (error,) = examine(composed("objective=metrics/fid50k"), searching="hydra/sweeper=optuna")[0]
    assert "objective=metrics/fid50k must be one of val/loss" in str(error)
    for name in ("val/loss", "metrics/fd1k_digits"):
        assert examine(composed(f"objective={name}"), searching="hydra/sweeper=optuna")[0] == []
    (error,) = examine(composed("metrics=none", "~callbacks.validation"), searching="hydra/sweeper=optuna")[0]
    assert "this run measures none" in str(error)


def test_pruning_is_not_in_the_hash_and_needs_an_objective(composed) -> None:
    plain, pruned = composed("objective=val/loss"), composed("objective=val/loss", "callbacks=pruned")
    assert config_hash(plain) == config_hash(pruned) and check(pruned) == []
    (error,) = check(composed("callbacks=pruned"))
    assert str(error) == "objective=null must be a value that the run logs; use objective=val/loss"


def test_an_option_that_an_extra_adds_is_named() -> None:
    assert _extra("optuna", "hydra/sweeper") == " (pip install 'diffusion-lab[optuna]' adds it)"
    assert _extra("optuna", "sampler") == "" and _extra("optune", "hydra/sweeper") == ""


def test_a_search_without_objective_trains_nothing(tmp_path: Path) -> None:
    searched = search(tmp_path, *SMALL)
    assert searched.wait() == 2
    said = (tmp_path / "log").read_text()
    assert said.count("config error: ") == 1 and "hydra/sweeper=searching" in said and "val/loss" in said
    assert not list(tmp_path.glob("runs/search/*"))


@pytest.mark.slow
def test_a_search_that_prunes_what_is_worse_than_its_siblings(tmp_path: Path) -> None:
    """Four learning rates, of which the last trains next to nothing: its loss stays above those of the finished two."""
    words = [*SMALL, "objective=val/loss", "callbacks=pruned", "callbacks.pruning.siblings=2"]
    search(tmp_path, *words, "hydra.sweeper.lr=[0.003,0.002,1e-9]").succeed()
    said = (tmp_path / "log").read_text()
    assert re.search(r"best: \d\.\d+ of 3", said) and "median of the 2 finished runs" in said
    results = {path.parent: json.loads(path.read_text()) for path in tmp_path.glob("runs/search/*/result.json")}
    assert sorted(result["status"] for result in results.values()) == ["done", "done", "pruned"]
    (folder,) = [folder for folder, result in results.items() if result["status"] == "pruned"]
    assert results[folder]["step"] == 2 and results[folder]["metrics"]["val/loss"] > 0

    def report() -> None:
        raise SystemExit(main(["report", str(tmp_path / "runs" / "search")]))

    Child(report, tmp_path / "report").succeed()
    assert "pruned" in (tmp_path / "report").read_text()

    def finish() -> None:
        os.chdir(tmp_path)
        raise SystemExit(main(["train", "-m", *SMALL, "name=search", "optimizer.lr=1e-9"]))

    Child(finish, tmp_path / "finished").succeed()
    assert json.loads((folder / "result.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_the_study_of_the_page_and_again(tmp_path: Path) -> None:
    """The page's command with three trials, then two more; every trial has a value."""
    optuna = pytest.importorskip("optuna")
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    (command,) = re.findall(r"^    diffusion-lab (train .*?[^\\])$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    words = [word for word in shlex.split(command.replace("\\\n", " ")) if not word.startswith("batch_size")]

    def study(trials: int) -> None:
        def work() -> None:
            os.chdir(tmp_path)
            small = [*SMALL, "batch_size=8,16", f"hydra.sweeper.n_trials={trials}"]
            raise SystemExit(main([*words, *small]))

        Child(work, tmp_path / "log").succeed(240)

    study(3)
    study(2)
    trials = optuna.load_study(study_name="lr", storage=f"sqlite:///{tmp_path}/lr.db").trials
    assert len(trials) == 5 and all(trial.value is not None for trial in trials)
    assert len(list(tmp_path.glob("runs/lr/*/result.json"))) == 5
    assert (tmp_path / "runs" / "lr" / "optimization_results.yaml").exists()
