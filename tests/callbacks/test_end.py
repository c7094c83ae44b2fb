"""What is always there at the end of a run, and which loss its line shows."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from diffusion_lab.callbacks import TimestepLog
from diffusion_lab.callbacks.progress import shown_loss
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.timesteps import StepRecord
from tests.harness import TINY, compose_train


@pytest.mark.parametrize("measured", [True, False])
def test_without_evaluations_the_end_is_validated_and_measured(measured, tmp_path):
    quiet_libraries()
    few = ["metrics.num_samples=130", "metrics.batch_size=130", "solver.steps=2"] if measured else ["metrics=none"]
    tiny = [word for word in TINY if word not in ("~callbacks.generation", "snapshot_every=5")]
    cfg = compose_train([*tiny, *few, "snapshot_every=0", "max_steps=2", "dataset.val_images=16"], tmp_path / "run")
    run = build_run(cfg, facts(cfg), [])
    run.trainer.fit(run.module, datamodule=run.data)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/loss" in row] == [2]
    assert [row["step"] for row in rows if any(key.startswith("metrics/") for key in row)] == ([2] if measured else [])
    assert (tmp_path / "run" / "samples").exists() is measured


def records(*losses: list[float]) -> list[StepRecord]:
    made = []
    for loss in losses:
        values = torch.tensor(loss)
        made.append(StepRecord(values, {}, values.long(), values, values))
    return made


def test_one_process_shows_the_loss_of_the_whole_step():
    trainer = SimpleNamespace(world_size=1, callbacks=[])
    assert shown_loss(trainer, records([1.0, 2.0], [3.0, 6.0])) == "loss 3.000e+00"


def test_several_processes_show_what_all_of_them_logged_last():
    log = TimestepLog()
    trainer = SimpleNamespace(world_size=2, callbacks=[log])
    assert shown_loss(trainer, records([1.0])) == ""
    log.latest = 0.25
    assert shown_loss(trainer, records([1.0])) == "loss 2.500e-01"
    assert shown_loss(SimpleNamespace(world_size=2, callbacks=[]), records([1.0])) == ""
