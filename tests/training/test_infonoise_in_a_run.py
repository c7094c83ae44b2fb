"""InfoNoise in a whole run on Gaussian data, whose smallest error m = v sigma^2/(v + sigma^2) is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from diffusion_lab.diffusion import linear
from tests.harness import configuration, train_child

VARIANCE, BINS, SCHEDULE = 0.25, 20, linear(1000)
OVERRIDES = [
    "dataset=gaussian",
    f"dataset.source.variances=[{VARIANCE}]",
    "sampler=infonoise",
    "schedule.num_timesteps=1000",
    "batch_size=32",
    "annealing=cosine",
    "optimizer.lr=0.002",
    "log_every=50",
    "snapshot_every=0",
    "checkpoint_every=0",
    f"callbacks.timestep_log.bins={BINS}",
]


def last_p(folder: Path, *overrides: str) -> torch.Tensor:
    """sampler/p of the last step, over the log's ranges of timesteps: (BINS,)."""
    train_child(configuration(folder, *OVERRIDES, *overrides)).succeed(300)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return torch.tensor([line["sampler/p"] for line in lines if "sampler/p" in line][-1], dtype=torch.float64)


def apart(p: torch.Tensor, w: torch.Tensor) -> float:
    """Total variation from the closed form m/sigma^2 sigma^3/(sigma^3 + c^3)/w per d ln sigma."""
    sigma = SCHEDULE.noise_level
    rho = VARIANCE / (VARIANCE + sigma**2) * sigma**3 / (sigma**3 + 0.15**3)
    closed = rho / w * torch.gradient(sigma.log())[0]
    return 0.5 * float((p - (closed / closed.sum()).unflatten(0, (BINS, -1)).sum(1)).abs().sum())


@pytest.mark.learning
def test_the_distribution_of_a_trained_network_approaches_the_closed_form(tmp_path: Path) -> None:
    """With eps prediction w = SNR, and the x0-loss at the most noise is many times the variance of the images."""
    assert apart(last_p(tmp_path / "eps", "max_steps=200"), SCHEDULE.snr) < 0.03
    # An untrained network whose answer is 0 has the x0-loss v everywhere, which w = 1 shows most clearly.
    untrained = last_p(tmp_path / "x0", "max_steps=60", "prediction=x0", "optimizer.lr=1e-9")
    assert apart(untrained, torch.ones(1000)) > 0.3
