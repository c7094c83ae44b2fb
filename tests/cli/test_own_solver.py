"""A solver and a spacing as a user's own files, each one Python file and one yaml: 2-step Adams-Bashforth."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child

SOLVER = """
from diffusion_lab.solvers import NoiseLevelSolver

class AdamsBashforth(NoiseLevelSolver):
    name = "ab2"

    def stepper(self, levels, noise):
        slopes = []

        def step(k, z, x0):
            slopes.append((z - x0) / levels[k])
            width, slope = levels[k + 1] - levels[k], slopes[-1]
            if k > 0 and levels[k + 1] > 0:
                slope = slope + 0.5 * width / (levels[k] - levels[k - 1]) * (slope - slopes[-2])
            return z + width * slope

        return step
"""
SPACING = """
import torch
from diffusion_lab.solvers import Spacing

class Every(Spacing):
    def __init__(self, stride: int):
        self.stride = stride

    def indices(self, schedule, steps):
        return torch.arange(schedule.num_timesteps - 1, -1, -self.stride)

    def describe(self):
        return f"every{self.stride}"
"""
YAML = {
    "solver": "defaults:\n  - spacing: mine\n  - _self_\n_target_: own_solver.AdamsBashforth\nsteps: null\n",
    "solver/spacing": "_target_: own_spacing.Every\nstride: 100\n",
}
SMALL = ("max_steps=2", "batch_size=8", "snapshot_every=0", "network=unet_tiny", "trainer=cpu", "metrics=none")


@pytest.mark.slow
def test_a_solver_and_a_spacing_from_outside_the_package_sample(tmp_path: Path) -> None:
    (tmp_path / "own_solver.py").write_text(SOLVER)
    (tmp_path / "own_spacing.py").write_text(SPACING)
    for group, text in YAML.items():
        (tmp_path / "my_conf" / group).mkdir(parents=True)
        (tmp_path / "my_conf" / group / "mine.yaml").write_text(text)

    def work() -> None:
        os.chdir(tmp_path)
        own = ("--config-dir", "my_conf")
        code = main(["train", *own, "solver=mine", *SMALL])
        run = f"run={next((tmp_path / 'runs').iterdir())}"
        more = ("metrics.names=[sample_variance]", "metrics.num_samples=2")
        code = code or main(["evaluate", *own, run, *more])
        code = code or main(["evaluate", *own, run, *more, "solver=unipc", "solver/spacing=mine", "solver.steps=null"])
        raise SystemExit(code)

    Child(work, tmp_path / "log").succeed()
    (run,) = (tmp_path / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [line["protocol"]["solver"] for line in lines] == ["ab2-every100", "unipc2-bh2-every100"]
