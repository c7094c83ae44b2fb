"""Predicted memory: small networks by hand, linearity, and real training in a process of its own."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.cli.build import build_run, part
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.cost.cost import predict_memory, resident_bytes
from diffusion_lab.cli.cost.counts import count_looks, example
from diffusion_lab.cli.cost.memory import Live, forward_bytes, step_bytes
from diffusion_lab.cli.train import facts, quiet_libraries
from diffusion_lab.networks import UNet
from tests.data.fakes import conditions_of
from tests.harness import Child

PIXELS = 3 * 8 * 8


class _Chain(nn.Module):
    """w x, then `depth` times exp, whose backward pass needs its result; then dropout with probability p."""

    def __init__(self, depth: int, p: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 8, 8, device="meta"))
        self.depth, self.p = depth, p

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = x * self.weight
        for _ in range(self.depth):
            h = h.exp()
        return F.dropout(h, self.p, self.training)


def _inputs(rows: int):
    return lambda device: example(conditions_of((3, 8, 8)), rows, device)


def _unet(image_size: int = 16) -> UNet:
    with torch.device("meta"):
        return UNet(3, 3, image_size, base_channels=32, channel_multipliers=[1, 2], num_res_blocks=1)


def test_live_counts_a_storage_once_until_it_dies() -> None:
    with Live() as live:
        a = torch.empty(1000)
        b = a.view(10, 100)[2:]
        assert live.now == 4000
        c = a + 1
        assert live.now == 8000
        del a, c
        gc.collect()
        assert live.now == 4000  # b still holds it
        del b
    gc.collect()
    assert (live.now, live.peak) == (0, 8000)


@pytest.mark.parametrize("depth", [5, 9])
def test_each_saved_result_counts_once(depth: int) -> None:
    """Per exp one result of rows * 192 floats; the difference of two depths has nothing else in it."""
    here, deeper = (step_bytes(_Chain(d), _inputs(4), "32-true", 1, cuda=False) for d in (depth, depth + 3))
    assert deeper - here == 3 * 4 * PIXELS * 4


def test_forward_without_gradients_keeps_one_result_at_a_time() -> None:
    """x, t, and at most two results: the one that is read and the one that is written."""
    small, deep = (forward_bytes(_Chain(d), _inputs(4), "32-true", cuda=False) for d in (3, 30))
    assert small == deep == 3 * 4 * PIXELS * 4 + 4 * 8


def test_a_gpu_keeps_a_mask_of_bytes() -> None:
    """Dropout's mask: floats on the CPU, one byte an element on a GPU."""
    cpu, gpu = (step_bytes(_Chain(3, 0.1), _inputs(4), "32-true", 1, cuda=cuda) for cuda in (False, True))
    assert cpu > gpu > step_bytes(_Chain(3), _inputs(4), "32-true", 1, cuda=True)


def test_activations_grow_with_the_rows_alone() -> None:
    given = [step_bytes(_unet(), _inputs_of(rows), "32-true", 1, cuda=False) for rows in (64, 128, 256)]
    assert given[2] - given[1] == 2 * (given[1] - given[0])


def _inputs_of(rows: int):
    return lambda device: example(conditions_of((3, 16, 16)), rows, device)


@pytest.mark.slow
def test_precision_and_accumulation() -> None:
    full, half = (step_bytes(_unet(), _inputs_of(64), p, 1, cuda=False) for p in ("32-true", "bf16-mixed"))
    assert 0.4 * full < half < 0.8 * full
    # Group norms in float32 need more than on a CPU, less than everything in float32.
    assert half < step_bytes(_unet(), _inputs_of(64), "bf16-mixed", 1, cuda=True) < full
    # Gradients of earlier microbatches live through the backward pass.
    assert step_bytes(_unet(), _inputs_of(1), "32-true", 2, cuda=False) >= step_bytes(
        _unet(), _inputs_of(1), "32-true", 1, cuda=False
    )


def test_the_network_given_is_left_on_the_meta_device() -> None:
    network = _unet()
    step_bytes(network, _inputs_of(2), "32-true", 1, cuda=False)
    assert {p.device.type for p in network.parameters()} == {"meta"}
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.slow
def test_a_fork_can_train_after_a_prediction(tmp_path: Path) -> None:
    step_bytes(_unet(), _inputs_of(1), "bf16-mixed", 1, cuda=True)
    weight = torch.ones(3, requires_grad=True)
    Child(lambda: weight.sum().backward(), tmp_path / "log").succeed()


DATA = [
    "dataset=gaussian",
    "dataset.source.channels=3",
    "dataset.source.image_size=32",
    "dataset.source.num_images=500",
    "dataset.source.num_test_images=16",
    "trainer.accelerator=cpu",
    "callbacks.generation=null",
    "callbacks.validation=null",
    "callbacks.checkpoint=null",
    "logger=none",
    "max_steps=2",
]


@pytest.mark.slow
@pytest.mark.parametrize("network", [["network=unet_ddpm", "batch_size=12"], ["network=unet_small", "batch_size=128"]])
def test_prediction_is_within_a_fifth_of_what_training_takes(composed, network: list[str], tmp_path: Path) -> None:
    """Peak of a process that trains two steps, beyond what a process holds that has trained a tiny network."""
    cfg = composed(*DATA, *network)
    data = part(cfg, "dataset")
    parts = (part(cfg, name) for name in ("prediction", "variance"))
    memory = predict_memory(cfg, meta_network(cfg, data, *parts), data, count_looks(cfg, data))

    def train() -> None:
        import resource

        _fit(composed(*DATA, "network=unet_tiny", "batch_size=8"))
        gc.collect()
        before = resident_bytes()
        _fit(cfg)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (tmp_path / "taken.json").write_text(json.dumps(peak - before))

    Child(train, tmp_path / "log").succeed()
    taken = json.loads((tmp_path / "taken.json").read_text())
    assert taken > 5e8  # or what libraries take would hide an error
    assert memory.peak == pytest.approx(taken, rel=0.2)


def _fit(cfg) -> None:
    quiet_libraries()
    run = build_run(cfg, facts(cfg))
    run.trainer.fit(run.module, datamodule=run.data)
