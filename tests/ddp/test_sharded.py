"""Two processes that share the weights: the run of one process, its checkpoints included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.ddp.test_equality import TOLERANCE, distance
from tests.harness import configuration, differences, final_state, train_child, trained, wait_for_step

pytestmark = pytest.mark.slow
SHARDED = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.strategy.start_method=fork"]
# 129 validation images: 65 for the first process in two batches, 64 for the second in one.
RUN = ["max_steps=20", "dataset.val_images=129", "callbacks.validation.batch_size=64"]


def write_what_a_process_holds(folder: Path) -> None:
    from diffusion_lab.training import ShardedStrategy

    original = ShardedStrategy.setup

    def setup(self, trainer) -> None:
        original(self, trainer)
        held = [(p.to_local().numel(), p.numel()) for p in self.model.parameters()]
        (folder / f"held-{self.global_rank}.json").write_text(json.dumps([sum(n) for n in zip(*held, strict=True)]))

    ShardedStrategy.setup = setup


def test_sharded_run_equals_one_process_and_continues_exactly(tmp_path: Path) -> None:
    alone, straight, killed = (tmp_path / name / "run" for name in ("alone", "straight", "killed"))
    train_child(configuration(alone, *RUN)).succeed()
    cfg = configuration(straight, *RUN, *SHARDED)
    train_child(cfg, lambda: write_what_a_process_holds(tmp_path)).succeed()
    one, two = final_state(alone), final_state(straight)
    assert distance(one, two) < TOLERANCE
    for decay, average in one["callbacks"]["EMA"].items():
        for name, value in average.items():
            torch.testing.assert_close(two["callbacks"]["EMA"][decay][name], value, rtol=1e-3, atol=1e-5)
    lines = [[json.loads(line) for line in state["metrics"].splitlines()] for state in (one, two)]
    validations = [[line["val/loss"] for line in of if "val/loss" in line] for of in lines]
    assert validations[0] == pytest.approx(validations[1], rel=1e-5) and len(validations[0]) == 4

    for rank in (0, 1):
        held, total = json.loads((tmp_path / f"held-{rank}.json").read_text())
        assert 0.4 * total < held < 0.6 * total

    assert differences(trained(configuration(killed, *RUN, *SHARDED), kills=[7]), two) == []


def test_a_sharded_run_goes_on_whole_and_a_whole_one_sharded(tmp_path: Path) -> None:
    alone, changed = tmp_path / "alone" / "run", tmp_path / "changed" / "run"
    train_child(configuration(alone, *RUN)).succeed()
    for step, way in ((6, SHARDED), (12, []), (20, SHARDED)):
        child = train_child(configuration(changed, "checkpoint_every=1", *RUN, *way))
        if step < 20:
            wait_for_step(child, changed, step)
            child.kill()
        else:
            child.succeed()
    assert distance(final_state(alone), final_state(changed)) < TOLERANCE
