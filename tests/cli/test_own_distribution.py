"""Distributions of timesteps of the user's own, each one .py and one .yaml outside the package: one of ln SNR, and one
that follows the losses with constants of the objective from the configuration."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import linear
from tests.harness import Child

SECH = """
import math
from diffusion_lab.timesteps import Distribution


class Sech(Distribution):
    def __init__(self, location: float = 0.0) -> None:
        if location > 5:
            raise ValueError(f"location={location} must be <= 5; use 0.0")
        self.location = location

    def cdf(self, x):
        return 2 / math.pi * ((x - self.location) / 2).exp().atan()
"""
SECH_YAML = """
_target_: diffusion_lab.timesteps.LogSNR
schedule: ${schedule}
distribution:
  _target_: sech.Sech
  location: 1.0
"""
INFORMED = '''
import torch
from diffusion_lab.timesteps import TimestepSampler


class Informed(TimestepSampler):
    """p_t w_t ~ eps-loss per d ln sigma, from running means of the x0-loss in ten ranges of t."""

    def __init__(self, schedule, native_scale: torch.Tensor, x0_weight: torch.Tensor) -> None:
        super().__init__(schedule.num_timesteps)
        self.scale, self.snr = native_scale, schedule.snr
        self.share = -torch.gradient(schedule.log_snr)[0] / x0_weight
        self.bin = torch.arange(self.num_timesteps) * 10 // self.num_timesteps
        self.register_buffer("error", torch.ones(10, dtype=torch.float64))

    def probabilities(self, step: int) -> torch.Tensor:
        p = self.error[self.bin] * self.snr * self.share
        return p / p.sum()

    def observe(self, record, context) -> None:
        t, loss = record.gathered()
        zero = torch.zeros_like(self.error)
        total, rows = zero.index_add(0, self.bin[t], loss / self.scale[t]), zero.index_add(0, self.bin[t], loss * 0 + 1)
        self.error.copy_(torch.where(rows > 0, total / rows.clamp(min=1), self.error))
'''
INFORMED_YAML = """
_target_: informed.Informed
schedule: ${schedule}
native_scale: {_target_: diffusion_lab.diffusion.native_scales, schedule: "${schedule}", prediction: "${prediction}"}
x0_weight:
  _target_: diffusion_lab.diffusion.x0_weights
  schedule: ${schedule}
  prediction: ${prediction}
  weighting: ${weighting}
"""
SMALL = ("scale=smoke", "network.base_channels=8", "trainer.accelerator=cpu", "metrics=none")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder."""
    for name, python, yaml in (("sech", SECH, SECH_YAML), ("informed", INFORMED, INFORMED_YAML)):
        (tmp_path / f"{name}.py").write_text(python)
        (tmp_path / "my_conf" / "sampler").mkdir(parents=True, exist_ok=True)
        (tmp_path / "my_conf" / "sampler" / f"{name}.yaml").write_text(yaml)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(user: Path, *arguments: str) -> int:
    def work() -> None:
        raise SystemExit(main(["train", "--config-dir", "my_conf", *arguments, *SMALL]))

    return Child(work, user / "log").wait()


def _logged(user: Path, key: str) -> list[list[float]]:
    (path,) = user.glob("runs/*/metrics.jsonl")
    return [line[key] for line in map(json.loads, path.read_text().splitlines()) if key in line]


@pytest.mark.slow
def test_a_distribution_of_ln_snr_trains(user: Path) -> None:
    """What the log has of p is the CDF's differences over the log's own ranges of timesteps."""
    assert _run(user, "base=ddpm", "sampler=sech") == 0, (user / "log").read_text()
    log_snr = linear(1000).log_snr.numpy()
    edge = np.concatenate([[1.5 * log_snr[0] - 0.5 * log_snr[1]], (log_snr[1:] + log_snr[:-1]) / 2])
    edge = np.append(edge, 1.5 * log_snr[-1] - 0.5 * log_snr[-2])
    cdf = 2 / math.pi * np.arctan(np.exp((edge - 1) / 2))
    p = _logged(user, "sampler/p")[-1]
    expected = -np.diff(cdf[:: 1000 // len(p)]) / (cdf[0] - cdf[-1])
    assert p == pytest.approx(list(expected), rel=1e-9)


@pytest.mark.slow
def test_one_that_follows_the_losses_trains(user: Path) -> None:
    assert _run(user, "sampler=informed", "max_steps=4", "log_every=1", "prediction=v", "weighting=min_snr") == 0, (
        user / "log"
    ).read_text()
    first, *_, last = _logged(user, "sampler/p")
    assert sum(last) == pytest.approx(1) and first != last


def test_its_constructor_objects_in_one_sentence(user: Path) -> None:
    assert _run(user, "sampler=sech", "sampler.distribution.location=6.0") == 2
    assert (user / "log").read_text() == "config error: sampler.distribution.location=6.0 must be <= 5; use 0.0\n"
