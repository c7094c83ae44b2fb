"""A sampler of the user's own: one .py and one .yaml outside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child

SAMPLER = '''
import torch
from diffusion_lab.timesteps import TimestepSampler


class Late(TimestepSampler):
    """p_t ~ (t + 1)^power."""

    def __init__(self, num_timesteps: int, power: float = 1.0) -> None:
        super().__init__(num_timesteps)
        if power < 0:
            raise ValueError(f"power={power} must be >= 0; use 1.0")
        self.power = power

    def probabilities(self, step: int) -> torch.Tensor:
        p = torch.arange(1, self.num_timesteps + 1, dtype=torch.float64) ** self.power
        return p / p.sum()
'''
YAML = "_target_: late.Late\nnum_timesteps: ${schedule.num_timesteps}\npower: 2.0\n"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder."""
    (tmp_path / "late.py").write_text(SAMPLER)
    (tmp_path / "my_conf" / "sampler").mkdir(parents=True)
    (tmp_path / "my_conf" / "sampler" / "late.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(user: Path, *arguments: str) -> int:
    def work() -> None:
        raise SystemExit(
            main(["train", "--config-dir", "my_conf", "base=ddpm", "sampler=late", "scale=smoke", *arguments])
        )

    return Child(work, user / "log").wait()


@pytest.mark.slow
def test_it_trains_alone_and_in_a_sweep(user: Path) -> None:
    small = ("network.base_channels=8", "trainer.accelerator=cpu")
    assert _run(user, *small) == 0, (user / "log").read_text()
    assert _run(user, "-m", "seed=0,1", "name=own", *small) == 0, (user / "log").read_text()
    for folder in [*user.glob("runs/digits-late-s0-*"), *user.glob("runs/own/digits-late-s*")]:
        assert json.loads((folder / "result.json").read_text())["status"] == "done"
        assert json.loads((folder / "run.json").read_text())["config"]["sampler"]["power"] == 2.0
    assert len(list(user.glob("runs/own/digits-late-s*"))) == 2


def test_its_constructor_objects_in_one_sentence(user: Path) -> None:
    assert _run(user, "sampler.power=-1") == 2
    assert (user / "log").read_text() == "config error: sampler.power=-1 must be >= 0; use 1.0\n"
    assert not (user / "runs").exists()
