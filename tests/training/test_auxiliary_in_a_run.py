"""Auxiliary losses in whole runs: names, logs, kills, processes, and combinations that are refused."""

from __future__ import annotations

import json
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from diffusion_lab.auxiliary import Dispersive
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import config_hash, method_name, run_name
from diffusion_lab.cli.main import main
from tests.harness import configuration, differences, final_state, train_child, trained

BOTH = ["auxiliary=[dispersive,contrastive]", "auxiliary.contrastive.stop=8", "auxiliary.dispersive.ramp=3"]
SHARDED = ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.strategy.start_method=fork"]
SHORT = ["max_steps=10", "log_every=4", "snapshot_every=0", "checkpoint_every=3"]


class Records(StepCallback):
    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, trainer: Any, module: Any, step: int, records: list) -> None:
        self.seen += [dict(record.auxiliary) for record in records]


def lines(folder: Path, key: str) -> list[tuple[int, float]]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[key]) for line in read if key in line]


def test_the_means_since_the_last_log_are_logged(tmp_path: Path) -> None:
    quiet_libraries()
    cfg, records = configuration(tmp_path, *SHORT, *BOTH), Records()
    run = build_run(cfg, facts(cfg), [records])
    run.trainer.fit(run.module, datamodule=run.data)
    for name, last in (("dispersive", 10), ("contrastive", 8)):
        assert [name in record for record in records.seen] == [step < last for step in range(10)]
        rows = [record[name] for record in records.seen[:last]]
        means = [float(torch.cat(rows[start : start + 4]).double().mean()) for start in range(0, last, 4)]
        logged = lines(tmp_path, f"train/aux_{name}")
        assert [value for _, value in logged] == pytest.approx(means, rel=1e-6) and len(set(means)) == len(means)
        assert [step for step, _ in logged] == [4, 8, 10][: len(means)]


def test_the_name_of_a_run_has_its_losses_and_the_hash_of_others_is_as_before(tmp_path: Path) -> None:
    plain, spread, both = (configuration(tmp_path, *more) for more in ([], ["auxiliary=dispersive"], BOTH))
    assert run_name(plain).startswith("digits-uniform-") and run_name(spread) == "digits-uniform-dispersive-s0"
    assert run_name(both) == "digits-uniform-dispersive-contrastive-s0"
    method = configuration(tmp_path, "method=contrastive_flow")
    assert method_name(method) == "contrastive_flow" and run_name(method) == "digits-contrastive_flow-s0"
    assert len({config_hash(cfg) for cfg in (plain, spread, both, method)}) == 4


def with_weight() -> None:
    """Give the dispersive loss a weight of its own that is trained."""
    changed: Any = Dispersive
    start, rows = changed.__init__, changed.rows

    @wraps(start)
    def init(self, *given, **named):
        start(self, *given, **named)
        self.scale = nn.Parameter(torch.ones(1))

    changed.__init__, changed.rows = init, lambda self, step: self.scale * rows(self, step)


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = trained(configuration(tmp_path / "whole", *SHORT, *BOTH), [], with_weight)
    killed = trained(configuration(tmp_path / "killed", *SHORT, *BOTH), [4], with_weight)
    assert differences(whole, killed) == []
    weights: Any = whole["weights"]
    assert weights["auxiliary.dispersive.scale"] != 1
    averaged: Any = whole["callbacks"]
    assert averaged["EMA"] and not [key for average in averaged["EMA"].values() for key in average if "scale" in key]


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Also after step 8, from which on one of the losses has ended."""
    ends = ["auxiliary.dispersive.stop=8", "auxiliary.contrastive.stop=null"]
    states: dict[str, Any] = {}
    split = {"one": [], "two": ["trainer.devices=2", "trainer.strategy=ddp_fork"], "sharded": SHARDED}
    for name, words in split.items():
        cfg = configuration(tmp_path / name, *SHORT, *BOTH, *ends, *words)
        train_child(cfg, with_weight).succeed()
        states[name] = final_state(tmp_path / name)["weights"]
    for place in ("two", "sharded"):
        assert states["one"].keys() == states[place].keys()
        for key, value in states["one"].items():
            assert torch.allclose(value, states[place][key], atol=2e-5), (place, key)
        for name in ("dispersive", "contrastive"):
            one, two = (lines(tmp_path / run, f"train/aux_{name}") for run in ("one", place))
            assert [value for _, value in one] == pytest.approx([value for _, value in two], rel=1e-4)


SMALL = ["network.base_channels=8", "max_steps=1", "trainer=cpu"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["auxiliary=dispersive", "auxiliary.dispersive.layers=[blocks.1]"],
            "auxiliary.dispersive.layers=blocks.1 must be a module inside UNet",
        ),
        (["auxiliary=dispersive", "accumulate=2"], "accumulate=2 must be 1 with auxiliary.dispersive=Dispersive"),
        (["method=contrastive_flow", "auxiliary.contrastive.weight=2"], "auxiliary.contrastive.weight=2"),
        (["auxiliary=dispersive", "auxiliary.dispersive.ramp=-1"], "auxiliary.dispersive.ramp=-1 must be an integer"),
        (["auxiliary=dispersive", "auxiliary.dispersive._target_=diffusion_lab.diffusion.Unit"], "must be a Auxiliary"),
    ],
)
def test_wrong_settings_are_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], in_folder: Path
) -> None:
    code = main(["train", *SMALL, *words])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said in line, line


def test_a_gan_has_none(capsys: pytest.CaptureFixture[str], in_folder: Path) -> None:
    code = main(["train", "task=gan", "auxiliary=dispersive"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and "auxiliary=dispersive must be null, because a GAN has no timesteps" in line
