"""`diffusion-lab doctor` on the paper GPU: its checks there, what they train with, and that they compute."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from diffusion_lab.cli.checks.machine import check_machine
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.doctor import small_training
from diffusion_lab.cli.doctor.check import DIFFERS, IMPOSSIBLE, OK, CheckPlace, checks_of, place_of
from diffusion_lab.cli.doctor.checks import generation, machine, training
from diffusion_lab.cli.doctor.small_training import STEPS, Training
from tests.cuda.machine import paper_machine

PAPER = ("~trainer.accelerator", "trainer.strategy={_target_: tests.cuda.machine.PaperStrategy}")
LOSSES = [1.0 - i / 100 for i in range(STEPS)]
TINY = (*training.SMALLEST, *training.STEPS_ALONE)
SETTINGS = {  # what each check trains with, beside the default and the device; None: not possible with one GPU
    "float32": {()},
    "tf32": {()},
    "bfloat16": {("precision=bf16-mixed",)},
    "float16_with_loss_scaler": {("precision=16-mixed", "optimizer.fused=false")},
    "channels_last": {("channels_last=true",)},
    "compiled": {
        (*training.SMALLEST, *training.STEPS_ALONE),
        (*training.SMALLEST, *training.STEPS_ALONE, "compile=true"),
    },
    "several_threads": None,
    "two_processes": None,
    "two_processes_fsdp": None,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The settings of every training that a check asks for; its losses are the reference's."""
    words: list[tuple[str, ...]] = []

    def train(folder: Path, *settings: str) -> Training:
        words.append(settings)
        return Training(LOSSES, 1.0)

    def command(folder: Path, *settings: str) -> None:
        words.append(settings)
        folder.mkdir(parents=True)

    monkeypatch.setattr(small_training, "train", train)
    monkeypatch.setattr(training, "command", command)
    monkeypatch.setattr(small_training, "losses_of", lambda folder: LOSSES)
    return words


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with two GPUs, for what asks how many there are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return 2


def test_what_each_check_trains_with_on_a_gpu_and_that_a_run_may(
    asked: list[tuple[str, ...]], gpus: int, tmp_path: Path
) -> None:
    assert {*SETTINGS, "sweep"} == {check.function for check in checks_of(training)}  # its jobs are commands
    device = ("trainer.accelerator=gpu", "trainer.devices=[1]")
    for name, wanted in SETTINGS.items():
        asked.clear()
        finding = getattr(training, name)(place_of("cuda:1", tmp_path, devices=1))
        on_gpu = {words for words in asked if words != ("trainer.accelerator=cpu",)}
        if wanted is None:
            assert finding.status == IMPOSSIBLE and not on_gpu
            continue
        assert finding.status == OK, (name, finding)
        assert on_gpu == {(*device, *words) for words in wanted}, name
        for words in on_gpu:
            assert check_machine(compose_train([*small_training.SMALL, *words], tmp_path)) == [], words


@pytest.mark.parametrize(("name", "trainer"), [("two_processes", "ddp"), ("two_processes_fsdp", "fsdp")])
def test_two_gpus_train_together_beside_one(
    name: str, trainer: str, asked: list[tuple[str, ...]], gpus: int, tmp_path: Path
) -> None:
    assert getattr(training, name)(place_of("cuda:0", tmp_path, devices=2)).status == OK
    assert [words[-1] for words in asked] == ["trainer=gpu", f"trainer={trainer}"]
    for words in asked:
        assert check_machine(compose_train(list(words), tmp_path)) == []


def test_tf32_is_off_for_float32_and_on_for_tf32(gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(folder: Path, *settings: str) -> Training:
        seen.append((folder.name, torch.backends.cudnn.allow_tf32))
        return Training(LOSSES, 1.0)

    monkeypatch.setattr(small_training, "train", train)
    before = torch.backends.cudnn.allow_tf32
    for check in (training.float32, training.tf32, training.channels_last):
        check(place_of("cuda:0", tmp_path))
    named = [pair for pair in seen if pair[0] != "reference"]
    assert named == [("float32", False), ("tf32", True), ("layout", False)]
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.slow
def test_losses_of_the_paper_gpu_are_those_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every callback of a run at work; the numbers are the host's, so all that could differ is what is drawn."""
    small = ("max_steps=4", "batch_size=8", "dataset.val_images=8", "callbacks.generation.grid=4", "solver.steps=2")
    monkeypatch.setattr(small_training, "SMALL", (*small_training.SMALL, *training.SMALLEST, *small))
    place = CheckPlace("cuda:0", tmp_path, settings=PAPER)
    training.reference(place)
    with paper_machine():
        finding = training.float32(place)
        assert finding.status == OK and "differ by" in finding.words
        # Negative control: another training on the device.
        assert training.compared(place, "wrong", training.OTHER_DEVICE, "optimizer.lr=0.3").status == DIFFERS


@pytest.mark.slow
def test_float16_with_its_scaler_trains_on_the_paper_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradients are zeros there, so the losses are not the CPU's, but every part of a step is reached."""
    small = ("max_steps=3", "batch_size=8", *TINY)
    monkeypatch.setattr(small_training, "SMALL", (*small_training.SMALL, *small))
    place = CheckPlace("cuda:0", tmp_path, settings=PAPER)
    training.reference(place)
    with paper_machine(mixed=True):
        finding = training.float16_with_loss_scaler(place)
    assert "losses differ by" in finding.words and not finding.crashed, finding


def test_features_of_the_paper_gpu_are_those_of_the_cpu(tmp_path: Path) -> None:
    with paper_machine():
        finding = generation.features_of_digits(CheckPlace("cuda:0", tmp_path))
    assert finding.status == OK and "between it and the CPU" in finding.words


def test_the_gpus_are_listed_with_their_memory(gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = SimpleNamespace(name="NVIDIA H100", total_memory=85e9, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: gpu)
    finding = machine.accelerators(place_of("cpu", tmp_path))
    assert finding.status == OK and "cuda:1 NVIDIA H100, 85.0 GB, capability 9.0" in finding.words
    assert list(machine.devices(tmp_path)) == ["cuda:0", "cuda:1"]
