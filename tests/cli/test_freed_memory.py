"""Memory that a process keeps: measured in a process of its own, and asked for by what computes on a CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from diffusion_lab.cli import compute, inference
from diffusion_lab.cli.commands import train
from diffusion_lab.cli.cost import trial
from diffusion_lab.cli.main import main

MEASURE = """
import os, torch
from pathlib import Path
from diffusion_lab.cli.compute import keep_freed_memory

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def held_after_freeing():
    before = resident_bytes()
    torch.ones(2**22)
    return resident_bytes() - before

torch.ones(2**16)  # PyTorch's own first steps
print(held_after_freeing())
keep_freed_memory()
print(held_after_freeing())
"""
SMALL = """base=ddpm network.base_channels=8 network.channel_multipliers=[1,2] max_steps=1 snapshot_every=0 batch_size=8
    callbacks.generation=null callbacks.validation=null threads=1 trainer.accelerator=cpu logger=none""".split()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_a_freed_tensor_leaves_its_memory_with_the_process() -> None:
    """One of 16 MB, for which glibc asks the system when it meets the first of that size."""
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    returned, kept = map(int, run.stdout.split())
    assert abs(returned) < 2**20
    assert kept > 2**24 - 2**21  # what lay free before holds a part of it


@pytest.mark.parametrize("on_cpu", [True, False])
def test_training_asks_for_it_on_a_cpu_alone(on_cpu: bool, in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(compute, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(train, "on_cpu", lambda trainer: on_cpu)
    assert main(["train", *SMALL]) == 0
    assert asked == [True] * on_cpu


def test_a_dry_run_times_its_steps_with_it(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(trial, "keep_freed_memory", lambda: asked.append(True))
    assert main(["train", *SMALL, "dry_run=true"]) == 0
    assert asked == [True]


def test_other_systems_have_no_such_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(compute.ctypes, "CDLL", lambda name: pytest.fail("a library was asked"))
    compute.keep_freed_memory()


def test_sampling_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(inference, "keep_freed_memory", lambda: asked.append(True))
    with inference.ready(nn.Linear(1, 1), "cpu"):
        assert asked == [True]
