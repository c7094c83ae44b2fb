"""Controls in whole runs: what reaches Adam, and a policy that no loss reaches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from diffusion_lab.training.checkpoint_io import load
from tests.harness import configuration, train_child

pytestmark = pytest.mark.slow
STEPS = 6
SOONER = ["sampler.every=1", "sampler.hidden=8", "~callbacks.validation", f"max_steps={STEPS}"]


def policy(folder: Path, *overrides: str) -> torch.Tensor:
    """The policy's weights at the end of a run."""
    train_child(configuration(folder, *SOONER, *overrides)).succeed()
    states = load(folder / "checkpoints" / "last.ckpt", map_location="cpu")["callbacks"]
    state = states["TimestepSampling/LearnedBeta"]
    return torch.cat([value.flatten() for key, value in state.items() if key.startswith("policy.")])


@pytest.mark.parametrize(("method", "reached"), [("learned_beta_zero", False), ("learned_beta", True)])
def test_only_measured_rewards_depend_on_the_model_that_is_trained(method: str, reached: bool, tmp_path: Path) -> None:
    """Two models on the same images, one of which hardly learns: without rewards both policies are equal to the bit."""
    one, two = (
        policy(tmp_path / lr / "run", f"method={method}", f"optimizer.lr={lr}", "sampler.entropy=1.0")
        for lr in ("0.003", "1e-6")
    )
    assert torch.equal(one, two) is not reached
    assert bool((one[-2:] != 0.5).all())  # the biases of the last layer, which began there


TAU = [step / STEPS for step in range(STEPS)]
DECAYED = [max(0.4, 0.8 * (1 - tau) / (1 - 0.8 * tau)) for tau in TAU]
ROWS = {
    "method=mdlrc annealing.compensate=false": [(1.0, beta1) for beta1 in DECAYED],
    "method=clts_mdlrc": [(0.2 / (1 - beta1), beta1) for beta1 in DECAYED],
    "method=ddpm annealing=constant_beta1": [(1.0, 0.8)] * STEPS,
    "method=ddpm annealing=linear_control": [(1 - 0.8 * tau, 0.8) for tau in TAU],
}


@pytest.mark.parametrize("words", ROWS)
def test_the_rows_of_momentum_reach_adam(words: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cfg = configuration(folder, *words.split(), f"max_steps={STEPS}", "~callbacks.validation")
    train_child(cfg).succeed()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [(row["optim/lr"], row["optim/beta1"]) for row in rows if "optim/beta1" in row]
    assert logged == [pytest.approx((0.001 * factor, beta1)) for factor, beta1 in ROWS[words]]
    groups = load(folder / "checkpoints" / "last.ckpt", map_location="cpu")["optimizer_states"][0]["param_groups"]
    assert groups[0]["betas"] == pytest.approx((ROWS[words][-1][1], 0.999))
