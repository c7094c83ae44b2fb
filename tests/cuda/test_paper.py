"""The paper GPU itself: what it refuses, what it notes as a wait, what it does not, and that its numbers are right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import open_dict

from diffusion_lab.cli.build import build_run
from tests.cuda.machine import paper_machine
from tests.cuda.paper import (
    CUDA,
    HOST_INDEX,
    MASK,
    PACKAGE,
    READ,
    SIZE,
    STATUS,
    TO_DEVICE,
    TO_HOST,
    PaperGPU,
    Wait,
    numbers,
)
from tests.cuda.training import configured, train
from tests.cuda.waits import ALLOWED, TABLE, not_allowed

WAITS: dict[str, tuple[str, Any]] = {
    "item": (READ, lambda x: x.sum().item()),
    "bool": (READ, lambda x: bool(x[0] > 0)),
    "int": (READ, lambda x: int(x[0])),
    "tolist": (TO_HOST, lambda x: x.tolist()),
    "cpu": (TO_HOST, lambda x: x.cpu()),
    "numpy": (TO_HOST, lambda x: x.numpy()),
    "copy_ to the host": (TO_HOST, lambda x: torch.empty(3).copy_(x)),
    "tensor of a number": (TO_DEVICE, lambda x: torch.tensor(1.0, device=x.device)),
    "upload": (TO_DEVICE, lambda x: torch.ones(3).to(x.device)),
    "mask": (MASK, lambda x: x[x > 0]),
    "nonzero": (SIZE, lambda x: x.nonzero()),
    "bincount": (SIZE, lambda x: x.long().bincount(minlength=9)),
    "unique": (SIZE, lambda x: x.unique()),
    "repeat": (SIZE, lambda x: x.repeat_interleave(x.long())),
    "index": (HOST_INDEX, lambda x: x[torch.arange(2)]),
    "eigh": (STATUS, lambda x: torch.linalg.eigh(torch.outer(x, x))),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_noted(name: str) -> None:
    why, act = WAITS[name]
    with paper_machine() as gpu:
        x = torch.ones(3, device=CUDA) + torch.arange(3, device=CUDA)
        act(x)
    assert gpu.waits == Counter({Wait("nobody", why): 1})


def test_what_does_not_wait_is_not_noted() -> None:
    with paper_machine() as gpu:
        x = torch.arange(3.0, device=CUDA)
        x.to("cpu", non_blocking=True)
        torch.ones(3).to(CUDA, non_blocking=True)
        x[1] = 0.5  # a number of the host goes with the kernel
        x[torch.arange(2, device=CUDA)].index_add_(0, torch.zeros(2, dtype=torch.int64, device=CUDA), x[:2])
        x.repeat_interleave(torch.ones(3, dtype=torch.int64, device=CUDA), output_size=3)
        torch.where(x > 0, x, 0.0).clamp(min=torch.tensor(0.1))
        assert x.to(CUDA) is x and x.cuda() is x and x.is_cuda
    assert not gpu.waits


def test_tensors_of_two_devices_are_refused() -> None:
    with paper_machine(), pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
        torch.ones(3, device=CUDA) + torch.ones(3)


def test_gradients_and_numbers_are_those_of_the_host() -> None:
    x = torch.tensor([0.3, 2.0])
    with paper_machine():
        y = x.to(CUDA).requires_grad_()
        (y.sin() * y).sum().backward()
        assert y.grad is not None and y.grad.device == CUDA
        found = numbers(y.grad)
    assert torch.equal(found, x.sin() + x * x.cos())


@pytest.mark.parametrize("sampler", ["uniform", "loss_second_moment"])
def test_a_training_ends_with_the_weights_of_the_cpu(sampler: str, tmp_path: Path) -> None:
    """To the bit: the paces and copies that only a GPU needs change no number. Both draw with the host's generators."""
    on_paper = train(configured(tmp_path / "paper", f"sampler={sampler}")).run.module.state_dict()
    cfg = configured(tmp_path / "cpu", f"sampler={sampler}")
    with open_dict(cfg):
        cfg.trainer.strategy, cfg.trainer.accelerator = "auto", "cpu"
        cfg.channels_last = False  # as on a GPU
    run = build_run(cfg, {"config": {}, "config_hash": ""})
    run.trainer.fit(run.module, datamodule=run.data)
    here = run.module.state_dict()
    assert here.keys() == on_paper.keys() and len(here) > 3
    assert all(torch.equal(numbers(on_paper[key]), here[key]) for key in here)


def test_what_the_table_allows_is_code_of_ours() -> None:
    """A function that is renamed or gone takes its line with it."""
    assert len(TABLE) == len(ALLOWED)
    for (where, _), *_ in ALLOWED:
        file, name = where.split(":")
        if not file.startswith(("torch/", "lightning/")):
            assert f"def {name.split('.')[-1]}(" in Path(PACKAGE, file).read_text(), where


def test_a_wait_that_the_table_does_not_have_is_not_allowed() -> None:
    gpu = PaperGPU()
    gpu.note(READ)
    assert not_allowed(gpu.waits) == {Wait("nobody", READ): 1}


def test_the_documentation_shows_the_table() -> None:
    text = Path(PACKAGE).parent.joinpath("docs", "hardware.md").read_text().split("## Waits for the device")[1]
    shown = [line for line in text.splitlines() if line.startswith("| `")]
    assert shown == [f"| `{where}` | {why} | {when} | {reason} |" for (where, why), when, reason in ALLOWED]
