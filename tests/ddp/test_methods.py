"""Every file of conf/method trains on two processes with accumulation, and a killed run ends as an uninterrupted one.

A new yaml is tested without an edit here. The numbers below only make the methods act within a few steps.
"""

import pytest

from diffusion_lab.cli.config import conf_dir
from tests.harness import configuration, differences, trained

pytestmark = pytest.mark.slow
METHODS = sorted(path.stem for path in (conf_dir() / "method").glob("*.yaml") if "/task: gan" not in path.read_text())
STEPS = 8
SOONER = {  # by the class of the sampler
    "LearnedBeta": {"every": 2, "select_from": 3, "queue": 3, "hidden": 8},
    "GradientVariance": {"every": 3, "points": 3, "images": 8},
    "EqualLossSlots": {"num_slots": 4, "update_every": 2},
    "LossSecondMoment": {"history_per_timestep": 1},
}


def configured(folder, *overrides):
    cfg = configuration(folder, f"max_steps={STEPS}", *overrides)
    for key, value in SOONER.get(cfg.sampler._target_.rpartition(".")[2], {}).items():
        cfg.sampler[key] = value
    return cfg


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_ends_as_an_uninterrupted_one(method, tmp_path):
    overrides = [f"method={method}", "trainer.devices=2", "trainer.strategy=ddp_fork", "accumulate=2"]
    straight = trained(configured(tmp_path / "straight" / "run", *overrides))
    killed = trained(configured(tmp_path / "killed" / "run", *overrides), kills=[5])
    assert differences(straight, killed) == []
    assert straight["step"] == STEPS
