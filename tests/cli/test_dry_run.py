"""What `dry_run=true` prints, what it lets pass and what it refuses, and that it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.checks.machine import checkpoint_bytes
from diffusion_lab.cli.dry_run import size
from diffusion_lab.cli.main import main
from diffusion_lab.cli.validate import check
from tests.harness import Child


def test_words() -> None:
    assert [size(n) for n in (12, 1234, 34.5e6, 1.2e9)] == ["12 B", "1.23 kB", "34.5 MB", "1.2 GB"]


ELSEWHERE = [
    "dataset=image_folder",
    "dataset.source.root=/nowhere/photos",
    "trainer=ddp",
    "trainer.devices=800",
    "network=unet_small",
    "batch_size=1600",
    "metrics=none",
]


def test_what_is_not_here_is_a_fault_of_training_alone(composed) -> None:
    faults = [str(error) for error in check(composed(*ELSEWHERE))]
    assert any(fault.startswith("trainer.") for fault in faults)
    assert any(fault.startswith("dataset.source.root=/nowhere/photos must be a folder") for fault in faults)
    assert check(composed(*ELSEWHERE, "dry_run=true")) == []


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("optimizer.lr=-1", "optimizer.lr=-1"),
        ("batch_size=1601", "batch_size=1601"),
        ("solver.steps=0", "solver.steps=0"),
        ("cost.device=A10000", "cost.device=A10000"),
        ("cost.utilization=0.0", "cost.utilization=0.0"),
        ("+cost.utilisation=0.5", "cost.utilisation"),
    ],
)
def test_other_faults_stay_faults(composed, override: str, key: str) -> None:
    """Among them a batch that cannot be split, which is not hidden by images that are not here."""
    faults = [str(error) for error in check(composed(*ELSEWHERE, "dry_run=true", override))]
    assert len(faults) == 1 and faults[0].startswith(key), faults


@pytest.mark.slow
def test_dry_run_of_what_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    Child(lambda: exit_with(main(["train", *ELSEWHERE, "dry_run=true"])), log).succeed()
    text = log.read_text()
    assert "missing here: dataset.source.root=/nowhere/photos must be a folder" in text
    assert "missing here: trainer." in text
    assert "800 x A100" in text and "assumed 30% of its peak" in text and "nothing was written" in text
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.slow
def test_dry_run_of_a_run_and_of_a_sweep_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["network.base_channels=8", "solver.steps=4", "max_steps=20", "trainer.accelerator=cpu", "dry_run=true"]
    for arguments in (small, ["-m", "sampler=uniform,stratified", *small]):
        log = tmp_path / f"log-{len(arguments)}"
        Child(lambda arguments=arguments: exit_with(main(["train", *arguments])), log).succeed()
        text = log.read_text()
        assert "nothing was written" in text and "images/s" in text and "measured over" in text
        assert text.count("digits-") == (1 if "-m" not in arguments else 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"log-{n}" for n in (5, 7))


def exit_with(code: int) -> None:
    raise SystemExit(code)


@pytest.mark.slow
def test_checkpoint_size_is_that_of_a_real_one(tmp_path: Path, composed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["scale=smoke", "max_steps=2", "trainer.accelerator=cpu", f"hydra.run.dir={tmp_path}/run"]
    Child(lambda: exit_with(main(["train", *arguments])), tmp_path / "log").succeed()
    parameters = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    real = (tmp_path / "run" / "checkpoints" / "last.ckpt").stat().st_size
    assert checkpoint_bytes(composed("scale=smoke"), parameters) == pytest.approx(real, rel=0.1)
