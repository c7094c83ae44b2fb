"""Two processes that share the weights: the run of one process, its checkpoints included."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ddp.test_equality import TOLERANCE, distance
from tests.harness import Child, configuration, differences, final_state, train_child, wait_for_step

pytestmark = pytest.mark.slow
SHARDED = ["trainer=fsdp", "trainer.accelerator=cpu"]
FORKED = ["trainer.strategy.start_method=fork"]  # saves the imports of the second process
# 129 validation images: 65 for the first process in two batches, 64 for the second in one.
RUN = ["max_steps=10", "dataset.val_images=129", "callbacks.validation.batch_size=64"]


def sharded_child(folder: Path, *overrides: str) -> Child:
    """In fresh processes: in a fork of one that had run hundreds of tests, glibc once found a double free."""
    command = [sys.executable, "-m", "tests.ddp.sharded_run", str(folder), *SHARDED, *overrides]
    return Child(lambda: os.execv(sys.executable, command), folder.parent / "child.log")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train_child(configuration(folder, *RUN)).succeed()
    state = final_state(folder)
    assert state["step"] == 10
    return state


def test_sharded_run_equals_one_process_and_continues_exactly(alone: dict[str, Any], tmp_path: Path) -> None:
    straight, killed = (tmp_path / name / "run" for name in ("straight", "killed"))
    sharded_child(straight, *RUN).succeed()
    one, two = alone, final_state(straight)
    assert distance(one, two) < TOLERANCE
    for decay, average in one["callbacks"]["EMA"].items():
        for name, value in average.items():
            torch.testing.assert_close(two["callbacks"]["EMA"][decay][name], value, rtol=1e-3, atol=1e-5)
    lines = [[json.loads(line) for line in state["metrics"].splitlines()] for state in (one, two)]
    validations = [[line["val/loss"] for line in of if "val/loss" in line] for of in lines]
    assert validations[0] == pytest.approx(validations[1], rel=1e-5) and len(validations[0]) == 2

    for rank in (0, 1):
        held, total = json.loads((straight.parent / f"held-{rank}.json").read_text())
        assert 0.4 * total < held < 0.6 * total

    # As a kill behind step 9 would have left it; the other test kills.
    shutil.copytree(straight, killed)
    (killed / "checkpoints" / "previous.ckpt").replace(killed / "checkpoints" / "last.ckpt")
    (killed / "result.json").unlink()
    child = sharded_child(killed, *RUN, *FORKED)
    child.succeed()
    assert "from step 9" in child.log.read_text()
    assert differences(final_state(killed), two) == []


def test_a_sharded_run_goes_on_whole_and_a_whole_one_sharded(alone: dict[str, Any], tmp_path: Path) -> None:
    changed = tmp_path / "run"
    settings = ["checkpoint_every=1", *RUN]
    for step, is_sharded in ((3, True), (6, False), (10, True)):
        whole = configuration(changed, *settings)
        child = sharded_child(changed, *settings, *FORKED) if is_sharded else train_child(whole)
        if step < 10:
            wait_for_step(child, changed, step)
            child.kill()
        else:
            child.succeed()
    assert distance(alone, final_state(changed)) < TOLERANCE
