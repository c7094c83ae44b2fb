"""A class-conditional model with guidance draws the digit that it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hydra import compose

from diffusion_lab.cli.commands.sample import run as sample
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.load import load_run
from diffusion_lab.data import Digits
from diffusion_lab.metrics import ClassifierFeatures, generate
from diffusion_lab.solvers import DDIM, Guided
from tests.harness import train_child

SETTINGS = [
    "dataset.conditional=true",
    "dataset.label_dropout=0.1",
    "max_steps=300",
    "batch_size=64",
    "optimizer.lr=0.002",
    "callbacks.ema.decays=[0.99]",
    "solver=guided",
    "solver.base.steps=20",
    "solver.scale=2.0",
    "metrics.num_samples=200",
    "metrics.names=[fid]",
    "snapshot_every=300",
    "checkpoint_every=300",
    "~callbacks.validation",
    "trainer.accelerator=cpu",
]


@pytest.mark.learning
def test_the_shipped_classifier_sees_the_digit_that_was_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train_child(compose_train(SETTINGS, folder)).succeed(limit=500)
    measured = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    (agreement,) = (row for row in measured if row["name"] == "agreement200_digits")
    assert agreement["value"] >= 0.9 and agreement["protocol"]["solver"] == "ddim-20-eta0-guided2"
    _check_the_same_by_hand(folder, agreement["value"])
    _check_grids(folder, tmp_path / "out")


def _check_the_same_by_hand(folder: Path, share: float) -> None:
    """Labels asked for as a user would, and the control: the null label for all gives no agreement."""
    trained = load_run(folder)
    wanted = torch.arange(200) % 10
    digits = ClassifierFeatures("digits")

    def agreement(solver, label) -> float:
        images = generate(
            trained.denoiser, solver, range(200), 0, Digits().shape, conditions=lambda ids: {"label": label[list(ids)]}
        )
        return float((digits(images).logits.argmax(1) == wanted).double().mean())

    assert agreement(Guided(DDIM(steps=20), 2.0), wanted) == pytest.approx(share, abs=0.011)
    assert agreement(DDIM(steps=20), torch.full_like(wanted, trained.denoiser.null_label)) < 0.3


def _check_grids(folder: Path, out: Path) -> None:
    """`diffusion-lab sample` writes one grid for each class that was asked for."""
    with initialized():
        sample(compose("sample", [f"run={folder}", f"outdir={out}", "seeds=0-7", "labels=[3,8]", "device=cpu"]))
    assert sorted(path.name for path in out.glob("class-*.png")) == ["class-3.png", "class-8.png"]
