"""Every file of conf/method goes on exactly after it was stopped; some of them on two processes after SIGKILL.

A new yaml is tested without an edit here; one without an option of its own is a second case, of the exhaustive suite.
The numbers below only make the methods act within a few steps. `make faults` kills runs of more kinds at random.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import conf_dir
from tests.harness import Child, configuration, differences, final_state, trained

pytestmark = pytest.mark.slow
METHODS = sorted(path.stem for path in (conf_dir() / "method").glob("*.yaml") if "/task: gan" not in path.read_text())


def options(method: str) -> set[str]:
    """What its file chooses itself: {"/sampler=speed", ..}."""
    entries = OmegaConf.load(conf_dir() / "method" / f"{method}.yaml").defaults
    return {
        f"{key.split()[-1]}={name}" for entry in entries if not isinstance(entry, str) for key, name in entry.items()
    }


def cases() -> Iterator[Any]:
    seen: set[str] = set()
    for method in METHODS:
        yield method if options(method) - seen else pytest.param(method, marks=pytest.mark.exhaustive)
        seen |= options(method)


CASES = list(cases())
# A policy with rewards, and as a second case a schedule; test_kill_resume has a history of losses.
KILLED = ("learned_beta", pytest.param("clts_mdlrc", marks=pytest.mark.exhaustive))
STEPS, STOP = 8, 5
SOONER = {  # by the class of the sampler
    "LearnedBeta": {"every": 2, "select_from": 3, "queue": 3, "hidden": 8},
    "GradientVariance": {"every": 3, "points": 3, "images": 8},
    "EqualLossSlots": {"num_slots": 4, "update_every": 2},
    "LossSecondMoment": {"history_per_timestep": 1},
}


def configured(folder: Path, *overrides: str) -> DictConfig:
    cfg = configuration(folder, f"max_steps={STEPS}", "accumulate=2", *overrides)
    if cfg.get("auxiliary"):  # a loss that compares the rows of an update
        cfg.accumulate = 1
    for key, value in SOONER.get(cfg.sampler._target_.rpartition(".")[2], {}).items():
        cfg.sampler[key] = value
    return cfg


def straight_and_stopped(straight: DictConfig, stopped: DictConfig) -> None:
    """Train both in this process, the second from what lay in the folder of the first in the middle of a step, as if
    it had been killed there."""
    from diffusion_lab.cli.commands.train import run
    from diffusion_lab.training import DiffusionModule

    step, there = DiffusionModule.training_step, Path(stopped.paths.run_dir)

    def copied(self: DiffusionModule, *args: Any) -> Any:
        if self.trainer.global_step == STOP and not there.exists():
            shutil.copytree(straight.paths.run_dir, there)
        return step(self, *args)

    DiffusionModule.training_step = copied
    run(straight)
    DiffusionModule.training_step = step
    run(stopped)


@pytest.mark.parametrize("method", CASES)
def test_a_stopped_run_ends_as_an_uninterrupted_one(method: str, tmp_path: Path) -> None:
    straight, stopped = (configured(tmp_path / name / "run", f"method={method}") for name in ("straight", "stopped"))
    Child(lambda: straight_and_stopped(straight, stopped), tmp_path / "log").succeed()
    assert re.search(r"continuing \S+ from step [1-9]", (tmp_path / "log").read_text())  # not from the beginning
    ends = [final_state(Path(cfg.paths.run_dir)) for cfg in (straight, stopped)]
    assert differences(*ends) == [] and ends[0]["step"] == STEPS


@pytest.mark.parametrize("method", KILLED)
def test_a_killed_run_of_two_processes_ends_as_an_uninterrupted_one(method: str, tmp_path: Path) -> None:
    words = [f"method={method}", "trainer.devices=2", "trainer.strategy=ddp_fork"]
    straight = trained(configured(tmp_path / "straight" / "run", *words))
    killed = trained(configured(tmp_path / "killed" / "run", *words), kills=[STOP])
    assert differences(straight, killed) == []
    assert straight["step"] == STEPS
