"""Processes that decode batches: how many there are, and that they change nothing."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from diffusion_lab.data import ImageDataModule, ImageFolder
from diffusion_lab.workers import JOBS, usual_workers
from tests.data.fakes import Memory, numbered, trainer

pytestmark = pytest.mark.skipif(multiprocessing.get_all_start_methods()[0] != "fork", reason="processes are not forked")


@pytest.fixture
def cores(monkeypatch):
    """Sets the cores that this process may use."""
    for variable in (JOBS, "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(variable, raising=False)
    return lambda count: monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)


@pytest.mark.parametrize(
    ("count", "jobs", "processes", "of_task", "workers"),
    [
        (1, "", 1, "", 0),
        (2, "", 1, "", 1),
        (16, "", 1, "", 8),
        (16, "4", 1, "", 3),  # jobs of a sweep at a time
        (16, "", 4, "", 3),  # processes of a run
        (16, "4", 4, "", 0),
        (4, "", 4, "4", 3),  # a task of SLURM, which has its own cores
        (8, "4", 1, "8", 1),  # jobs at a time within one task
        (16, "many", 2, "", 7),
    ],
)
def test_the_cores_are_shared(cores, monkeypatch, count, jobs, processes, of_task, workers):
    cores(count)
    monkeypatch.setenv(JOBS, jobs)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", of_task)
    assert usual_workers(processes) == workers


def batches(source, start: int = 0, steps: int = 5, **kwargs) -> tuple[int, list[Tensor]]:
    """Number of workers, and the images of these steps as the model sees them."""
    data: Any = ImageDataModule(source, 8, flip=True, **kwargs)
    data.trainer = trainer(step=start)
    loader = data.train_dataloader()
    found = iter(loader)
    seen = [data.on_after_batch_transfer(next(found), 0)["image"] for _ in range(start, steps)]
    return getattr(loader, "num_workers", 0), seen


def test_decoded_images_are_the_same_to_the_bit_with_and_without_workers(cores, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    pixels = torch.randint(0, 256, (24, 6, 6, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for i, image in enumerate(pixels):
        Image.fromarray(image.numpy()).save(folder / f"{i:02}.png")
    source = ImageFolder(str(folder), image_size=4, memory_mb=0, cache_dir=str(tmp_path))
    cores(3)
    workers, by_workers = batches(source)
    none, alone = batches(source, num_workers=0)
    assert (workers, none) == (2, 0) and torch.equal(torch.stack(by_workers), torch.stack(alone))
    assert not torch.equal(by_workers[0], by_workers[1])
    resumed, rest = batches(source, start=3)
    assert resumed == 2 and torch.equal(torch.stack(rest), torch.stack(alone[3:]))
    assert batches(source, num_workers=1, steps=1)[0] == 1  # the user's number
    cores(1)
    assert batches(source, steps=1)[0] == 0


def test_images_in_memory_need_no_workers(cores):
    cores(8)
    assert batches(Memory(numbered()), steps=1)[0] == 0
