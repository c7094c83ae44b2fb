"""SIGKILL at a random step, the same command again: equal to the bit to a run that was never interrupted."""

import random
import shutil

import pytest
import torch
from hydra.utils import instantiate

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position
from tests.harness import configuration, differences, train_child, trained, wait_for_step

pytestmark = pytest.mark.slow
STEPS = 24
LSM = ["sampler=loss_second_moment", "sampler.history_per_timestep=2"]
SETUPS = {
    "plain": [],
    "accumulation": ["accumulate=2"],
    "workers": ["dataset.num_workers=2"],
    "accumulation, workers": ["accumulate=2", "dataset.num_workers=2"],
    "dropout, warm-up and stratified": [
        "network.dropout=0.1",
        "annealing=warmup",
        "annealing.warmup_steps=10",
        "sampler=stratified",
        "sampler@sampler.base=loss_second_moment",
        "sampler.base.history_per_timestep=2",
    ],
    "two processes": ["trainer.devices=2", "trainer.strategy=ddp_fork"],
    "two processes, accumulation, workers": [
        "trainer.devices=2",
        "trainer.strategy=ddp_fork",
        "accumulate=2",
        "dataset.num_workers=2",
    ],
}

# Each of these is a part of another setup.
ALONE = ("accumulation", "workers", "accumulation, workers", "two processes")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The state of the plain setup without a kill."""
    return trained(configuration(tmp_path_factory.mktemp("plain") / "run", *overrides_of("plain")))


def overrides_of(setup):
    sampler = [] if "stratified" in setup else LSM
    return [f"max_steps={STEPS}", *sampler, *SETUPS[setup]]


@pytest.mark.parametrize(
    "setup", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in ALONE)) for name in SETUPS]
)
def test_killed_run_ends_as_an_uninterrupted_one(setup, plain, tmp_path):
    overrides = overrides_of(setup)
    cfg = configuration(tmp_path / "straight" / "run", *overrides)
    straight = plain if setup == "plain" else trained(cfg)
    kills = sorted(random.Random(setup).sample(range(2, STEPS - 1), 2 if setup == "plain" else 1))
    killed = trained(configuration(tmp_path / "killed" / "run", *overrides), kills)
    assert differences(straight, killed) == [], f"killed at steps {kills}"
    assert straight["step"] == STEPS
    assert next_draws(cfg, straight) == next_draws(cfg, killed)


def next_draws(cfg, state):
    """The 100 draws that would follow, from the sampler's saved state."""
    sampler = instantiate(cfg.sampler, _convert_="all")
    saved = next(value for key, value in state["callbacks"].items() if key.startswith("TimestepSampling/"))
    sampler.load_state_dict(saved)
    draws = []
    for step in range(STEPS, STEPS + 100):
        draw = sampler.draw(torch.zeros(16, 1, 8, 8), Context(Position(step), Streams(cfg.seed)))
        draws.append((draw.t.tolist(), draw.weight.tolist()))
    return draws


def forget_the_sampler():
    from diffusion_lab.callbacks import TimestepSampling

    TimestepSampling.load_state_dict = lambda self, state: None


def start_the_order_again():
    from diffusion_lab.data.order import StepOrder

    original = StepOrder.__init__

    def start_at_zero(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.start = lambda: 0

    StepOrder.__init__ = start_at_zero


def forget_the_averages():
    from diffusion_lab.callbacks import EMA

    EMA.load_state_dict = lambda self, state: None


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """The folder of the plain setup, killed at step 17."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    child = train_child(configuration(folder, *overrides_of("plain")))
    wait_for_step(child, folder, 17)
    child.kill()
    return folder


@pytest.mark.parametrize(
    ("sabotage", "seen_in"),
    [(forget_the_sampler, "weights"), (start_the_order_again, "weights"), (forget_the_averages, "callbacks")],
)
def test_negative_control_a_forgetful_resume_differs(sabotage, seen_in, plain, cut, tmp_path):
    folder = shutil.copytree(cut, tmp_path / "run")
    resumed = trained(configuration(folder, *overrides_of("plain")), before=sabotage)
    assert seen_in in differences(plain, resumed)
