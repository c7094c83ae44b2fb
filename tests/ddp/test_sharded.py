"""Two processes that share the weights: the run of one process, its checkpoints included."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.ddp.test_equality import TOLERANCE, distance
from tests.harness import Child, configuration, differences, final_state, train_child

pytestmark = pytest.mark.slow
SHARDED = ["trainer=fsdp", "trainer.accelerator=cpu"]
FORKED = ["trainer.strategy.start_method=fork"]  # saves the imports of the second process
# 129 validation images: 65 for the first process in two batches, 64 for the second in one.
RUN = ["max_steps=10", "keep_every=3", "dataset.val_images=129", "callbacks.validation.batch_size=64"]


def sharded_child(folder: Path, *overrides: str) -> Child:
    """In fresh processes: in a fork of one that had run hundreds of tests, glibc once found a double free."""
    command = [sys.executable, "-m", "tests.ddp.sharded_run", str(folder), *SHARDED, *overrides]
    return Child(lambda: os.execv(sys.executable, command), folder.parent / "child.log")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train_child(configuration(folder, *RUN)).succeed()
    return folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run of two processes."""
    folder = tmp_path_factory.mktemp("sharded") / "run"
    sharded_child(folder, *RUN).succeed()
    return folder


def stopped(run: Path, step: int, folder: Path) -> Path:
    """A copy as a kill behind a step would have left it; tests/ddp/test_killed_process.py kills."""
    shutil.copytree(run, folder)
    checkpoints = folder / "checkpoints"
    (checkpoints / f"step-{step:08d}.ckpt").replace(checkpoints / "last.ckpt")
    for path in checkpoints.iterdir():
        if path.name != "last.ckpt":
            path.unlink()
    (folder / "result.json").unlink()
    return folder


def test_a_sharded_run_equals_one_process(alone: Path, sharded: Path) -> None:
    one, two = final_state(alone), final_state(sharded)
    assert one["step"] == 10 and distance(one, two) < TOLERANCE
    for decay, average in one["callbacks"]["EMA"].items():
        for name, value in average.items():
            torch.testing.assert_close(two["callbacks"]["EMA"][decay][name], value, rtol=1e-3, atol=1e-5)
    lines = [[json.loads(line) for line in state["metrics"].splitlines()] for state in (one, two)]
    validations = [[line["val/loss"] for line in of if "val/loss" in line] for of in lines]
    assert validations[0] == pytest.approx(validations[1], rel=1e-5) and len(validations[0]) == 2
    for rank in (0, 1):
        held, total = json.loads((sharded.parent / f"held-{rank}.json").read_text())
        assert 0.4 * total < held < 0.6 * total


def test_it_goes_on_exactly(sharded: Path, tmp_path: Path) -> None:
    folder = stopped(sharded, 9, tmp_path / "run")
    child = sharded_child(folder, *RUN, *FORKED)
    child.succeed()
    assert "from step 9" in child.log.read_text()
    assert differences(final_state(folder), final_state(sharded)) == []


def test_a_sharded_run_goes_on_whole(alone: Path, sharded: Path, tmp_path: Path) -> None:
    folder = stopped(sharded, 3, tmp_path / "run")
    goes_on_as(alone, folder, 3, train_child(configuration(folder, *RUN)))


@pytest.mark.exhaustive  # a sharded one goes on sharded above
def test_a_whole_run_goes_on_sharded(alone: Path, tmp_path: Path) -> None:
    folder = stopped(alone, 6, tmp_path / "run")
    goes_on_as(alone, folder, 6, sharded_child(folder, *RUN, *FORKED))


def goes_on_as(alone: Path, folder: Path, step: int, child: Child) -> None:
    child.succeed()
    assert f"from step {step}" in child.log.read_text()
    assert distance(final_state(alone), final_state(folder)) < TOLERANCE
