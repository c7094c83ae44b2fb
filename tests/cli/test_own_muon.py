"""Muon as a user's own file: PyTorch's two optimizers side by side, bit for bit those of `optimizer=muon`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child

FILES = {
    "own_muon.py": """
import torch
from torch.optim import AdamW, Muon, Optimizer

class Both(Optimizer):
    def __init__(self, params, lr=2e-4):
        hidden = params.hidden
        rest = [p for p in params if not any(p is q for q in hidden)]
        self.adam = AdamW(rest, lr, weight_decay=0.1, fused=True)
        self.muon = Muon(hidden, lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        super().__init__([*self.adam.param_groups, *self.muon.param_groups], {})

    def step(self, closure=None):
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for part, group in zip((self.adam, self.muon), self.param_groups):
            part.param_groups, part.state = [group], self.state
            part.step()
        return loss
""",
    "my_conf/optimizer/mine.yaml": "_target_: own_muon.Both\n_partial_: true\nlr: 2.0e-4\n",
}
SMALL = (
    "network=dit_tiny",
    "network.dim=16",
    "network.depth=1",
    "solver.steps=2",
    "max_steps=4",
    "batch_size=8",
    "log_every=1",
    "snapshot_every=0",
    "trainer=cpu",
    "metrics.names=[sample_variance]",
)


@pytest.mark.slow
def test_muon_from_outside_the_package_trains_as_that_inside(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def work() -> None:
        os.chdir(tmp_path)
        code = main(["train", "--config-dir", "my_conf", "optimizer=mine", *SMALL, "paths.root=own"])
        code = code or main(["train", "optimizer=muon", *SMALL, "paths.root=inside"])
        code = code or main(["train", "optimizer=adamw", *SMALL, "optimizer.weight_decay=0.1", "paths.root=adamw"])
        raise SystemExit(code)

    Child(work, tmp_path / "log").succeed()
    own, inside, adamw = (_losses(tmp_path / root) for root in ("own", "inside", "adamw"))
    assert own == inside != adamw and len(own) == 4


def _losses(root: Path) -> list[float]:
    (run,) = root.iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]
