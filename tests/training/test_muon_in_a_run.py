"""Muon in a whole run: the momentum's annealing, and resuming exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from diffusion_lab.annealing import MDLRC
from diffusion_lab.cli.config import compose_train
from diffusion_lab.optimizers import Muon
from tests.harness import TINY, differences, trained

WORDS = ["optimizer=muon", "optimizer.lr=0.001", "annealing=mdlrc", "annealing.total_steps=6", "max_steps=6"]


def _configuration(folder: Path, network: str) -> DictConfig:
    words = [word for word in TINY if not word.startswith("network")]
    return compose_train([*words, f"network={network}", *WORDS], folder)


def forget() -> None:
    """Let a checkpoint's optimizer state be ignored."""
    Muon.load_state_dict = lambda self, state_dict: None


@pytest.mark.slow
@pytest.mark.parametrize("network", ["dit_tiny", pytest.param("unet_tiny", marks=pytest.mark.exhaustive)])
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, network: str) -> None:
    states: dict[str, Any] = {}
    for name, kills, before in (("whole", [], None), ("killed", [4], None), ("forgetful", [4], forget)):
        states[name] = trained(_configuration(tmp_path / name, network), kills, before)
    assert differences(states["whole"], states["killed"]) == []
    assert "weights" in differences(states["whole"], states["forgetful"])
    adam, muon = states["whole"]["optimizer"][0]["param_groups"]
    beta1 = MDLRC(6)(5).beta1
    assert adam["betas"] == (beta1, 0.999) and muon["momentum"] == beta1 and "betas" not in muon
