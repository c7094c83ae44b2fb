"""Predicted memory: small networks by hand, linearity, and real training in a process of its own."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.cost import cost
from diffusion_lab.cli.cost.counts import WORK_SPACE, activations
from diffusion_lab.cli.run_parts import part
from diffusion_lab.networks import ADMUNet, UNet, UViT
from diffusion_lab.networks.kernels import as_on_gpu
from tests.data.fakes import conditions_of
from tests.harness import Child

PIXELS = 3 * 8 * 8


class _Chain(nn.Module):
    """w x, then `depth` times exp, whose backward pass needs its result."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 8, 8, device="meta"))
        self.depth = depth

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = x * self.weight
        for _ in range(self.depth):
            h = h.exp()
        return h


def kept(network: nn.Module, rows: int, precision: str = "32-true", cuda: bool = False) -> int:
    size = 8 if isinstance(network, _Chain) else 16
    return activations(network, conditions_of((3, size, size)), rows, precision, cuda)


def resident_bytes() -> float:
    """Memory that this process holds."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _unet() -> UNet:
    with torch.device("meta"):
        return UNet(3, 3, 16, base_channels=32, channel_multipliers=[1, 2], num_res_blocks=1)


@pytest.mark.parametrize("depth", [5, 9])
def test_each_saved_result_counts_once(depth: int) -> None:
    """Per exp one result of rows * 192 floats; the difference of two depths has nothing else in it."""
    here, deeper = (kept(_Chain(d), 4) for d in (depth, depth + 3))
    assert deeper - here == pytest.approx((1 + WORK_SPACE) * 3 * 4 * PIXELS * 4, abs=1)


def test_activations_grow_with_the_rows_alone() -> None:
    """The network's weights are not among them."""
    given = [kept(_unet(), rows) for rows in (64, 128, 256)]
    assert given[2] - given[1] == pytest.approx(2 * (given[1] - given[0]), abs=2)


def test_precision() -> None:
    full, half = (kept(_unet(), 64, precision) for precision in ("32-true", "bf16-mixed"))
    assert 0.4 * full < half < 0.8 * full
    # Group norms in float32 need more than on a CPU, less than everything in float32.
    assert half < kept(_unet(), 64, "bf16-mixed", cuda=True) < full


def _uvit() -> UViT:
    with torch.device("meta"):
        return UViT(3, 3, 16, dim=32, depth=2, num_heads=2)


def test_attention_in_bfloat16_on_a_cpu_keeps_its_scores() -> None:
    """Of each row, block and head 65^2 numbers of 2 bytes, where the fused kernel keeps 65 sums of 4."""
    whole = kept(_uvit(), 8, "bf16-mixed")
    with as_on_gpu():
        fused = kept(_uvit(), 8, "bf16-mixed")
    assert whole - fused == pytest.approx((1 + WORK_SPACE) * 8 * 3 * 2 * (65**2 * 2 - 65 * 4), abs=2)


def test_the_memory_of_a_gpu_has_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = kept(_uvit(), 8, "bf16-mixed", cuda=True)
    monkeypatch.setattr("diffusion_lab.networks.kernels.MOST_TOKENS", 0)  # the fused kernel everywhere
    assert kept(_uvit(), 8, "bf16-mixed", cuda=True) == estimated


def test_a_block_that_is_computed_again_keeps_less() -> None:
    """In half precision for a GPU too, where this once failed."""
    adm = (ADMUNet(3, 3, 16, 32, [1, 2], 1, [8], num_heads=1, checkpointing=again) for again in (False, True))
    with torch.device("meta"):
        plain, again = (kept(network, 8, "bf16-mixed", cuda=True) for network in adm)
    assert again < 0.7 * plain


def test_the_network_given_is_left_on_the_meta_device() -> None:
    network = _unet()
    kept(network, 2)
    assert {p.device.type for p in network.parameters()} == {"meta"}
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.slow
def test_a_fork_can_train_after_a_prediction(tmp_path: Path) -> None:
    kept(_unet(), 1, "bf16-mixed", cuda=True)
    torch.ones(3, requires_grad=True).sum().backward()
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
@pytest.mark.parametrize(
    "network",
    [
        ["network=unet_ddpm", "batch_size=6"],
        pytest.param(["network=unet_small", "batch_size=128"], marks=pytest.mark.exhaustive),
    ],
)
def test_prediction_is_within_a_fifth_of_what_training_takes(composed, network: list[str], tmp_path: Path) -> None:
    """Peak of a process that trains two steps, beyond what a process holds that has trained a tiny network."""
    cfg = composed(*DATA, *network)
    data = part(cfg, "dataset")
    counts, counted = cost._count(cfg, data)
    memory = cost.predict_memory(cfg, counted, data, counts)

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
