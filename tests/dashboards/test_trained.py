"""Every panel against what real offline runs have logged to W&B, panel by panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train
from diffusion_lab.dashboards import (
    Lines,
    PanelSection,
    RunSelection,
    Workspace,
    expected,
    logged_by,
    sections,
    specification,
)
from diffusion_lab.runs.find import read_run
from tests.dashboards.document import absent, as_logged, given
from tests.harness import TINY
from tests.loggers import wandb_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning"),  # of wandb-workspaces' import
]
RUN = ["logger=wandb", "logger.wandb.mode=offline", "max_steps=4", "metrics.num_samples=200", "metrics.names=[fid,is]"]
BETTER = {"fd200_digits": "lower", "is200_digits": "higher"}
KINDS = {
    "heads": ["prediction=mixed", "solver.steps=2"],
    "gan": ["task=gan", "network=dcgan"],
}


def trained(folder: Path, words: list[str]) -> tuple[Path, dict[str, Any]]:
    """Train a few steps with W&B offline; the run folder, and what is in W&B's file."""
    quiet_libraries()
    cfg = compose_train([*RUN, *words], folder)
    run = build_run(cfg, facts(cfg))
    run.trainer.fit(run.module, datamodule=run.data)
    return folder, wandb_file.read_run(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOME": home, "WANDB_CONFIG_DIR": home, "WANDB_BASE_URL": "http://127.0.0.1:9"}.items():
            patch.setenv(name, str(value))
        tiny = [word for word in TINY if word != "~callbacks.generation"]
        shared = ["batch_size=16", "log_every=1", "snapshot_every=2", "trainer.accelerator=cpu"]
        return {
            "heads": trained(home / "heads", [*tiny, *KINDS["heads"]]),
            "gan": trained(home / "gan", [*KINDS["gan"], *shared]),
        }


def document(logged: Any) -> dict[str, Any]:
    return specification(Workspace("n", "p", RunSelection(), sections(logged)))


def test_every_panel_of_a_papers_dashboard_is_logged(runs: Any) -> None:
    there = given(runs["heads"][1])
    for section in sections(expected(BETTER)):
        for panel in section.panels:
            assert panel.missing(as_logged(runs["heads"][1], BETTER)) == [], (section.name, panel)
    assert absent(document(expected(BETTER)), there) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_panel_of_a_folders_dashboard_is_logged(kind: str, runs: Any) -> None:
    folder, run = runs[kind]
    logged = logged_by([read_run(folder)])
    assert absent(document(logged), given(run)) == []
    own = as_logged(run, BETTER)
    assert logged.numbers <= own.numbers and logged.lists == own.lists and logged.pictures == own.pictures
    names = {section.name.split()[0] for section in sections(logged)}
    assert ("Heads" in names, "Density" in names) == ((True, True) if kind == "heads" else (False, False))


def test_a_panel_with_a_key_that_nobody_logs_is_found(runs: Any) -> None:
    wrong = [PanelSection("wrong", (Lines("wrong", "images", ("val/loss", "nobody/logs_this"), "x"),))]
    assert absent(specification(Workspace("n", "p", RunSelection(), wrong)), given(runs["heads"][1])) == [
        "Run History Line Plot: nobody/logs_this"
    ]


def test_the_run_has_what_the_workspace_groups_and_selects_by(runs: Any) -> None:
    run = runs["heads"][1]
    assert run["config"]["method"] == "uniform-mixed" and run["config"]["seed_group"].startswith(
        "digits-uniform-mixed-"
    )
    assert {"method:uniform-mixed", "dataset:digits", "schedule:linear"} == set(run["tags"])
