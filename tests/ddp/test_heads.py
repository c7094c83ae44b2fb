"""Predictions of three heads: killed runs resume to the bit on two processes, and a run's folder gives them back."""

import json

import pytest
import torch

from diffusion_lab.cli.load import load_run
from tests.harness import configuration, differences, trained

pytestmark = pytest.mark.slow
STEPS = 10
GATE = ["+prediction.reduction.lr=0.1", "+prediction.reduction.bins=20"]
TWO = ["trainer.devices=2", "trainer.strategy=ddp_fork"]


def rule(name: str, kind: str) -> str:
    """The word that puts a class in the place of a rule."""
    return f"prediction.{name}._target_=diffusion_lab.diffusion.{kind}"


@pytest.mark.parametrize("name", [pytest.param("mixed_paper", marks=pytest.mark.exhaustive), "combined"])
def test_killed_run_ends_as_an_uninterrupted_one_and_can_be_loaded(name, tmp_path):
    overrides = [f"max_steps={STEPS}", f"prediction={name}", *TWO]
    straight = trained(configuration(tmp_path / "straight" / "run", *overrides))
    killed = trained(configuration(tmp_path / "killed" / "run", *overrides), kills=[5])
    assert differences(straight, killed) == []
    assert straight["step"] == STEPS
    tables = {key: value for key, value in straight["weights"].items() if key.startswith("denoiser.prediction.")}
    assert tables["denoiser.prediction.tracker.updates"] == STEPS
    assert tables["denoiser.prediction.tracker.selected"].sum() == pytest.approx(STEPS * 16)  # rows of both processes
    assert not any("prediction" in key for average in straight["callbacks"]["EMA"].values() for key in average)

    prediction = load_run(tmp_path / "straight" / "run").denoiser.prediction
    for key, value in prediction.state_dict().items():
        assert torch.equal(value, tables[f"denoiser.prediction.{key}"]), key

    lines = [json.loads(line) for line in straight["metrics"].decode().splitlines()]
    logged = [line for line in lines if "prediction/head_v" in line]
    assert [line["step"] for line in logged] == list(range(1, STEPS + 1))
    assert len(logged[-1]["prediction/head_x0"]) == len(logged[-1]["prediction/weight_eps"]) == 20


def test_one_process_tracks_what_two_do(tmp_path):
    overrides = [f"max_steps={STEPS}", "prediction=combined"]
    one = trained(configuration(tmp_path / "one" / "run", *overrides))
    two = trained(configuration(tmp_path / "two" / "run", *overrides, *TWO))
    for key, value in one["weights"].items():
        if key.startswith("denoiser.prediction."):
            torch.testing.assert_close(value, two["weights"][key], rtol=1e-3, atol=1e-6, msg=key)


@pytest.mark.parametrize(
    "overrides",
    [
        [rule("reduction", "LearnedGate"), *GATE, rule("generation_head", "GateHead")],
        [rule("granularity", "PerBin"), "variance=learned_range"],
        [rule("reduction", "WarmupMin"), "+prediction.reduction.steps=10000", "weighting=min_snr", "accumulate=2"],
        [rule("granularity", "PerPixel"), "precision=bf16-mixed", "gradient_clip=null"],
    ],
    ids=" ".join,
)
def test_rules_train_together_with_other_parts(overrides, tmp_path):
    state = trained(configuration(tmp_path / "run", "max_steps=3", "prediction=mixed", *overrides))
    tables = [value for key, value in state["weights"].items() if key.startswith("denoiser.prediction.")]
    assert all(table.dtype in (torch.float64, torch.int64) and table.isfinite().all() for table in tables)
