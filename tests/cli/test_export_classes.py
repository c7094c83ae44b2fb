"""The card and config.json of an exported class-conditional model: names of the labels, guidance, one prediction."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import (
    Denoiser,
    EDMPrediction,
    EDMScale,
    Epsilon,
    LearnedRange,
    LogNoise,
    Prediction,
    V,
    cosine,
    rectified_flow,
)
from diffusion_lab.export import DiffusersFolder, Form, Pickled, Safetensors, card
from diffusion_lab.networks import DiT, UNet
from diffusion_lab.runs.run import Run
from diffusion_lab.solvers import DDIM, Euler, Guided, Solver, Trailing
from diffusion_lab.training import TrainedDiffusion
from tests.cli.test_export import followed

FORMS: list[Form] = [Safetensors(), Pickled(), DiffusersFolder()]
NETWORKS: dict[str, tuple[type, dict[str, Any]]] = {
    "dit": (DiT, {"patch_size": 2, "dim": 16, "depth": 1, "num_heads": 2}),
    "unet": (UNet, {"base_channels": 8, "channel_multipliers": (1, 2), "num_res_blocks": 1}),
}


def model(
    kind: str = "dit", solver: Solver | None = None, prediction: Prediction | None = None, **parts: Any
) -> TrainedDiffusion:
    """An untrained conditional model of digits, as one of a run whose classes have names."""
    torch.manual_seed(0)
    data = ImageDataModule(Digits(), 16, conditional=True, label_dropout=0.1)
    data.conditions.recorded_classes = ["cats", "do|gs", "```\nrows"]
    network, own = NETWORKS[kind]
    prediction = prediction or V()
    variance = parts.get("variance")
    outputs = prediction.heads + (variance.channels if variance else 0)
    own |= {"_target_": f"{network.__module__}.{network.__name__}"} | (
        {} if kind == "dit" else {"attention_resolutions": ()}
    )
    made = network(1, outputs, image_size=8, num_classes=4, **{k: v for k, v in own.items() if k != "_target_"})
    for parameter in made.parameters():  # the last layers start as zeros
        torch.nn.init.normal_(parameter, std=0.2)
    denoiser = Denoiser(made, parts.pop("schedule", cosine(100)), prediction, null_label=3, **parts).eval()
    trained = TrainedDiffusion(Path("run"), {"network": own}, "0" * 64, denoiser, data, 5, None)
    trained.own_solver = partial(lambda: solver or DDIM(4))
    return trained


def text(trained: TrainedDiffusion, form: Form) -> str:
    return card(trained, Run(Path("run"), "done"), form)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_the_card_says_what_every_label_is(form: Form) -> None:
    written = text(model(), form)
    assert "| 0 | `cats` |\n| 1 | `do gs` |\n| 2 | `rows` |\n| 3 | no class" in written
    assert "`num_classes` 4" in written
    assert written.count("```") % 2 == 0


def test_config_json_names_the_classes_and_the_label_of_none(tmp_path: Path) -> None:
    Pickled().write(model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["classes"] == ["cats", "do|gs", "```\nrows"] and config["null_label"] == 3
    assert config["network"]["num_classes"] == 4


@pytest.mark.parametrize("form", FORMS[:2], ids=lambda form: type(form).__name__)
@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, "out has 1 channels of V. V: v = alpha eps - sigma x0"),
        ({"kind": "unet"}, "label = torch.arange(4) % 3"),
        (
            {"prediction": Epsilon(), "variance": LearnedRange()},
            "1 channels of Epsilon, then 1 of LearnedRange. Epsilon: The noise",
        ),
        (
            {
                "prediction": EDMPrediction(),
                "schedule": rectified_flow(100),
                "preconditioning": EDMScale(),
                "time": LogNoise(),
            },
            "EDMPrediction: F of x0",
        ),
    ],
)
def test_the_lines_end_with_one_prediction_as_the_denoiser_makes_it(
    parts: dict[str, Any], says: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = model(**parts)
    form.write(trained, tmp_path)
    usage = form.usage(trained)
    assert says in usage
    names = followed(usage, tmp_path, monkeypatch)
    with torch.no_grad():
        (own, extra) = trained.denoiser._answer(names["x"], torch.full((4,), 99), {"label": torch.tensor([0, 1, 2, 0])})
    own = torch.cat([own, extra], 1)
    assert own.std() > 0.01 and torch.allclose(names["out"], own, atol=1e-5)


@pytest.mark.parametrize(
    "solver",
    [
        Guided(Euler(20, Trailing(), clip=False), scale=2.0),
        Guided(Euler(20, Trailing()), scale=1.5, channels=1),
        Euler(20, Trailing()),
    ],
    ids=["guided", "channels", "plain"],
)
def test_the_library_samples_with_the_guidance_of_the_run(
    solver: Solver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, form = model(solver=solver), DiffusersFolder()
    form.write(trained, tmp_path)
    x = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    names = followed(form.usage(trained), tmp_path, monkeypatch, x)
    with torch.no_grad():
        own = solver.solve(trained.denoiser, x, lambda k, x: x, range, {"label": torch.arange(16) % 3})
    assert (names["images"] - (own / 2 + 0.5)).abs().max() < 1e-4
