"""A path and a prediction as a user's own files: rectified flow and its velocity, bit for bit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child

FILES = {
    "own_path.py": """
import torch
from diffusion_lab.diffusion import GaussianPath

def straight(num_timesteps: int) -> GaussianPath:
    s = (torch.arange(num_timesteps, dtype=torch.float64) + 0.5) / num_timesteps
    return GaussianPath(1 - s, s, s, (-torch.ones_like(s), torch.ones_like(s)))
""",
    "own_velocity.py": """
from diffusion_lab.diffusion import Estimate, Prediction

class NoiseMinusImage(Prediction):
    def target(self, x0, eps, alpha, sigma):
        return eps - x0

    def estimate(self, out, x_t, alpha, sigma):
        d = alpha + sigma
        return Estimate((x_t - sigma * out) / d, (alpha * out + x_t) / d)

    def native_scale(self, snr):
        return (snr.sqrt() + 1).square()
""",
    "my_conf/schedule/mine.yaml": "_target_: own_path.straight\nnum_timesteps: 1000\n",
    "my_conf/prediction/mine.yaml": "_target_: own_velocity.NoiseMinusImage\n",
}
SMALL = (
    "max_steps=4",
    "batch_size=8",
    "log_every=1",
    "snapshot_every=0",
    "trainer=cpu",
    "network.base_channels=8",
    "metrics.names=[sample_variance]",
    "metrics.num_samples=16",
    "solver.steps=2",
)


@pytest.mark.slow
def test_a_path_and_a_prediction_from_outside_the_package_train_as_those_inside(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def work() -> None:
        os.chdir(tmp_path)
        code = main(["train", "--config-dir", "my_conf", "schedule=mine", "prediction=mine", *SMALL, "paths.root=own"])
        inside = ("schedule=rectified_flow", "prediction=velocity", *SMALL)
        code = code or main(["train", *inside, "paths.root=inside"])
        code = code or main(["train", *inside, "schedule.shift=2", "paths.root=shifted"])
        raise SystemExit(code)

    Child(work, tmp_path / "log").succeed()
    own, inside, shifted = (_numbers(tmp_path / root) for root in ("own", "inside", "shifted"))
    assert own == inside != shifted and len(own) == 4


def _numbers(root: Path) -> list[tuple[float, float]]:
    (run,) = root.iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["train/loss"], line["sampler/objective"]) for line in lines if "train/loss" in line]
