"""A trained run as a part of another: the weak model of solver=autoguided, or the encoder of auxiliary=repa_run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.init_weights import checkpoint_content
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.main import main
from tests.harness import TINY, Child, configuration, train_child

GUIDED = ("solver=autoguided", "solver.base.steps=4", "solver.weak.run=weak")


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six steps, with the checkpoint of the third."""
    folder = tmp_path_factory.mktemp("weak") / "run"
    train_child(configuration(folder, "max_steps=6", "keep_every=3", "solver.steps=4")).succeed()
    return folder


@pytest.fixture
def here(weak: Path, in_folder: Path) -> Path:
    """The working folder, with a copy of that run as `weak`."""
    shutil.copytree(weak, in_folder / "weak")
    return in_folder


def said(*words: str) -> str:
    """What a command that must fail prints, in a child."""
    log = Path("log")
    log.unlink(missing_ok=True)
    assert Child(lambda: leave(words), log).wait() == 2
    return log.read_text()


def leave(words: tuple[str, ...]) -> None:
    raise SystemExit(main(list(words)))


def train(*words: str) -> tuple[str, ...]:
    return ("train", *TINY, *GUIDED, *words)


def test_the_checksum_counts_and_the_place_does_not(here: Path) -> None:
    def identity(run: str) -> str:
        return config_hash(configuration(here / "run", *GUIDED[:2], f"solver.weak.run={run}"))

    shutil.copytree("weak", "moved")
    assert identity("weak") == identity("moved") == identity("weak:step-00000006")
    assert identity("weak:step-00000003") != identity("weak") != identity("weak:raw")


@pytest.mark.slow
def test_a_run_and_its_evaluations_are_guided_by_another(here: Path) -> None:
    words = ("max_steps=2", "metrics.names=[sample_variance]", "metrics.num_samples=4", "paths.root=runs")
    weak = ("solver.weak.run=weak:step-00000003",)
    Child(lambda: leave(train(*words)), here / "log").succeed()
    (run,) = (here / "runs").iterdir()
    node = json.loads((run / "run.json").read_text())["config"]["solver"]["weak"]
    assert node["run"] == "weak" and len(node["checksum"]) == 12
    trained = load_run(run)
    assert trained.samples(range(2)).shape == (2, 1, 8, 8)
    shutil.copytree(run, here / "own")
    measured = ("metrics.names=[sample_variance]", "metrics.num_samples=4")
    for more in ((), GUIDED[:2] + weak, ("solver=ddim", "solver.steps=4")):
        Child(lambda more=more: leave(("evaluate", "run=own", *measured, *more)), here / "log").succeed()
    lines = [json.loads(line) for line in (here / "own" / "evaluations.jsonl").read_text().splitlines()][-3:]
    names = [line["protocol"]["solver"] for line in lines]
    assert names[0] == f"ddim-4-eta0-autoguided2-{node['checksum']}" and names[2] == "ddim-4-eta0"
    assert names[1].startswith("ddim-4-eta0-autoguided2-") and names[1] != names[0]
    assert len({line["value"] for line in lines}) == 3
    (here / "weak" / "checkpoints" / "last.ckpt").unlink()
    (here / "weak" / "checkpoints" / "step-00000006.ckpt").unlink()
    changed = said("evaluate", "run=own", *measured)
    assert f"solver.weak.run=weak must have the weights of the checksum {node['checksum']}" in changed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("solver.weak.run=nowhere",), "solver.weak.run=nowhere must be the folder of a trained run"),
        (("solver.weak.run=null",), "solver.weak.run=null must be the folder of a trained run"),
        (
            ("dataset=fashion_mnist14", "network.channel_multipliers=[1,2]"),
            "solver.weak.run=weak must have the images of the shape of this run, (1, 14, 14), and has (1, 8, 8)",
        ),
        (("dataset.conditional=true",), "must have the classes, in number, of this run, 10, and has None"),
        (("schedule=linear", "schedule.num_timesteps=50"), "weak.run=weak must have the schedule of the model"),
    ],
    ids=["missing", "not given", "another size", "another condition", "another schedule"],
)
def test_a_run_that_does_not_fit_is_refused_before_step_1(here: Path, words: tuple[str, ...], sentence: str) -> None:
    text = said(*train("max_steps=2", *words))
    assert sentence in " ".join(text.split()) and not (here / "runs").exists()


ALIGNED = (*TINY, "solver.steps=4", "auxiliary=repa_run", "auxiliary.repa.encoder.run.run=weak")


@pytest.mark.slow
def test_a_run_is_drawn_to_the_features_of_another(here: Path) -> None:
    Child(lambda: leave(("train", *ALIGNED, "max_steps=2", "paths.root=runs")), here / "log").succeed()
    (run,) = (here / "runs").iterdir()
    node = json.loads((run / "run.json").read_text())["config"]["auxiliary"]["repa"]["encoder"]["run"]
    assert node["run"] == "weak" and len(node["checksum"]) == 12
    assert "train/aux_repa" in (run / "metrics.jsonl").read_text()
    state = checkpoint_content(run / "checkpoints", "last")["state_dict"]
    added = [key for key in state if key.startswith("auxiliary.")]
    assert added and all(key.startswith("auxiliary.repa.projector.") for key in added)
    shutil.rmtree(here / "weak" / "checkpoints")
    assert load_run(run).samples(range(2)).shape == (2, 1, 8, 8)  # a model needs its teacher for training alone


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("dataset=fashion_mnist14", "network.channel_multipliers=[1,2]"),
            "repa.encoder.run.run=weak must have the images of the shape of this run, (1, 14, 14), and has (1, 8, 8)",
        ),
        (("auxiliary.repa.encoder.layer=block",), "auxiliary.repa.encoder.layer=block must be a module inside UNet"),
        (("auxiliary.repa.encoder.t=5000",), "auxiliary.repa.encoder.t=5000 must be a timestep of weak, below"),
        (("auxiliary.repa.encoder.run.run=null",), "auxiliary.repa.encoder.run.run=null must be the folder of a"),
    ],
    ids=["another size", "no such layer", "no such timestep", "not given"],
)
def test_a_teacher_that_does_not_fit_is_refused_before_step_1(
    here: Path, words: tuple[str, ...], sentence: str
) -> None:
    text = said("train", *ALIGNED, *words)
    assert sentence in " ".join(text.split()) and not (here / "runs").exists()
