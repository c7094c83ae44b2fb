"""Faults of code that only several GPUs, or a machine without one, would meet."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from diffusion_lab.callbacks.progress import memory_mb
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.cli.cost.trial import WARM_UP, _Clock, take_steps
from diffusion_lab.distributed import gather_rows
from diffusion_lab.training import DiffusionModule
from diffusion_lab.training.checkpoint_io import VerifiedCheckpointIO, load
from tests.harness import configuration


def test_a_checkpoint_of_a_gpu_is_read_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tensors say where they lay; on a machine of several GPUs all processes would put them on the first."""
    path, files = tmp_path / "last.ckpt", VerifiedCheckpointIO()
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        files.save_checkpoint({"weight": torch.arange(3.0)}, path)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            load(path)
    weight = files.load_checkpoint(path)["weight"]
    assert weight.device.type == "cpu" and weight.tolist() == [0, 1, 2]


def copy_memory(parts: list[Tensor], x: Tensor) -> None:
    """NCCL's: the numbers of x in memory order, into the memory of each part."""
    memory = x.as_strided((x.numel(),), (1,))
    for part in parts:
        part.as_strided((x.numel(),), (1,)).copy_(memory)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_rows_are_gathered_whatever_their_layout(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in {"is_initialized": True, "get_world_size": 2}.items():
        monkeypatch.setattr(dist, name, lambda answer=answer: answer)
    monkeypatch.setattr(dist, "all_gather", copy_memory)
    x = torch.arange(24.0).view(2, 3, 2, 2)
    assert torch.equal(gather_rows(x.to(memory_format=layout)), torch.cat([x, x]))


def test_the_memory_of_a_run_on_the_cpu_is_its_own_although_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7_000_000)
    assert memory_mb(torch.device("cpu")) > 50  # Python with PyTorch
    assert memory_mb(torch.device("cuda:0")) == 7


def test_a_step_of_several_microbatches_is_timed_as_one() -> None:
    """The clock ran within a step that was not counted yet: with 8 of them a step seemed up to 44 % longer."""
    clock, trainer = _Clock(budget_s=1e9), SimpleNamespace(global_step=WARM_UP, should_stop=False)
    module = SimpleNamespace(device=torch.device("cpu"))
    looks = []
    for number in range(12):
        trainer.global_step = WARM_UP + number // 4
        clock.on_train_batch_end(trainer, module)  # type: ignore[arg-type]
        looks.append((clock.steps, clock.seconds))
    assert [steps for steps, _ in looks] == [0] * 4 + [1] * 4 + [2] * 4
    assert all(len({seconds for steps, seconds in looks if steps == k}) == 1 for k in range(3))


def test_sampling_is_timed_where_training_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning moves the model to the CPU at the end of a training; the rest of a trial belongs on the GPU again."""
    events: list[object] = []
    to = DiffusionModule.to
    monkeypatch.setattr(SingleDeviceStrategy, "teardown", lambda _: events.append("taken off"))
    monkeypatch.setattr(DiffusionModule, "to", lambda self, *where: events.append(where[0]) or to(self, *where))
    quiet_libraries()
    cfg = configuration(tmp_path / "run", "network.base_channels=4", "network.channel_multipliers=[1]", "max_steps=1")
    take_steps(cfg, 0.0, 1)
    assert events[events.index("taken off") :] == ["taken off", torch.device("cpu")]
