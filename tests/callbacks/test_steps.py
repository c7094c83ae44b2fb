"""Callbacks act once per update, in their order, with the records of all its microbatches."""

from typing import Any

import pytest
from lightning.pytorch import Callback

from diffusion_lab.callbacks import AnnealingCallback, RunRecord
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from tests.harness import configuration

PER_BATCH = [
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
]


class Note(StepCallback):
    def __init__(self, name: str, notes: list[tuple[str, int, list[int]]]) -> None:
        self.name, self.notes = name, notes

    @property
    def state_key(self) -> str:
        return self.name

    def on_step_end(self, trainer: Any, module: Any, step: int, records: list) -> None:
        assert step == trainer.global_step
        self.notes.append((self.name, step, [len(record.t) for record in records]))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_acts_once_per_update_in_the_order_of_the_list(accumulate, tmp_path):
    quiet_libraries()
    quiet = ["snapshot_every=0", "checkpoint_every=0", "log_every=0"]
    cfg = configuration(tmp_path / "run", *quiet, "max_steps=3", f"accumulate={accumulate}")
    notes: list[tuple[str, int, list[int]]] = []
    run = build_run(cfg, facts(cfg), [Note("a", notes), Note("b", notes)])
    for _ in range(2):  # a second fit of the same objects does not act twice
        run.trainer.fit(run.module, datamodule=run.data)
        run.trainer.fit_loop.epoch_loop.max_steps += 2
    rows = [16 // accumulate] * accumulate
    assert notes == [(name, step, rows) for step in range(1, 6) for name in "ab"]


@pytest.mark.parametrize("kind", [Note, AnnealingCallback, RunRecord])
def test_lightning_passes_over_what_does_nothing(kind):
    silent = {name for name in PER_BATCH if getattr(kind, name) is None}
    assert silent == set(PER_BATCH) - ({"on_train_batch_start"} if kind is AnnealingCallback else set())
    assert all(callable(getattr(Callback, name)) for name in PER_BATCH)
