"""What is counted on the meta device, against hand-made numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.cli.checks.machine import checkpoint_bytes, checkpoints_kept, optimizer_states
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.cost.counts import count_looks, describe_batch, flops, rows_per_pass, solver_calls
from diffusion_lab.cli.processes import world_size
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import Epsilon, FixedLarge
from tests.data.fakes import conditions_of


class _Convolution(nn.Module):
    """3 -> 5 channels, 3 x 3, without a bias: 2 * 27 * 5 FLOPs a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3, padding=1, bias=False, device="meta")

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_flops_of_a_convolution() -> None:
    forward, both = flops(_Convolution(), conditions_of((3, 8, 8)))
    assert forward == 2 * 27 * 5 * 64
    assert both == 2 * forward  # the input needs no gradient: the backward pass makes that of the weights alone


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [
        (["solver=ddim", "solver.steps=7"], 7),
        (["solver=guided", "solver.base.steps=7"], 14),
        (["solver=heun", "solver.steps=5"], 9),
        (["solver=ddpm"], 1000),
    ],
)
def test_network_calls_of_the_solvers(composed, overrides: list[str], calls: int) -> None:
    assert solver_calls(composed(*overrides)) == calls


@pytest.mark.parametrize(
    ("overrides", "rows"),
    [
        (["sampler=uniform"], 0),
        (["sampler=learned_beta"], 3 * 2 * (100 + 3 * 16)),  # at steps 0, 40 and 80; a quarter of 64 rows
        (["sampler=learned_beta_released"], 3 * 2 * (1000 + 3 * 64)),
        (["sampler=gradient_variance", "sampler.every=500", "sampler.first=40"], 3 * 2 * 20 * 32),  # at 40 and 80
    ],
)
def test_rows_that_the_sampler_looks_at(composed, overrides: list[str], rows: int) -> None:
    cfg = composed(*overrides, "max_steps=81", "~callbacks.generation", "~callbacks.validation", "batch_size=64")
    looks = count_looks(cfg, ImageDataModule(Digits(), batch_size=64))
    assert looks.sampler_rows == looks.network_calls == rows


def test_a_wrapped_sampler_looks_at_as_many_rows(composed) -> None:
    cfg = composed("sampler=mixture", "~callbacks.generation", "~callbacks.validation", "max_steps=81")
    cfg.sampler.base = composed("sampler=gradient_variance", "sampler.every=500", "sampler.first=40").sampler
    assert count_looks(cfg, ImageDataModule(Digits(), batch_size=64)).sampler_rows == 2 * 3 * 20 * 32


def test_looks_of_a_run(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64, features=object())
    cfg = composed("max_steps=1100", "snapshot_every=500", "metrics.num_samples=200", "solver.steps=7")
    looks = count_looks(cfg, data)
    # Pictures at 500 and 1000, and metrics at the end.
    assert (looks.generations, looks.samples, looks.calls, looks.rows) == (1, 200, 7, 200)
    assert (looks.grids, looks.grid) == (2, 64)
    assert (looks.validations, looks.images, looks.validation_rows) == (3, 360, 128)
    assert looks.checkpoints == 3
    assert looks.network_calls == (200 + 2 * 64) * 7 + 3 * 360
    more = composed("max_steps=1100", "snapshot_every=500", "metrics.num_samples=200", "metrics_every=1000")
    assert (count_looks(more, data).generations, count_looks(more, data).grids) == (2, 1)  # at 1000 and the end
    alone = composed("max_steps=1100", "snapshot_every=500", "metrics=none")
    assert (count_looks(alone, data).generations, count_looks(alone, data).samples) == (3, 64)
    end = count_looks(composed("snapshot_every=0"), data)
    assert (end.generations, end.grids, end.validations) == (1, 0, 1)
    for without in (["snapshot_every=0", "metrics=none"], ["~callbacks.generation"]):
        assert count_looks(composed(*without), data).generations == 0
    assert count_looks(composed("callbacks.validation=null", "callbacks.checkpoint=null"), data).checkpoints == 0


def test_processes_share_the_samples(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64, features=object())
    assert count_looks(composed("trainer=ddp_cpu", "metrics.num_samples=301"), data).rows == 151


def test_batch_processes_and_disk(composed) -> None:
    cfg = composed(
        "trainer=ddp_cpu", "batch_size=64", "accumulate=4", "max_steps=100", "keep_every=10", "checkpoint_every=5"
    )
    assert world_size(cfg) == 2
    assert describe_batch(cfg) == "64 images = 2 processes x 4 microbatches x 8"
    assert rows_per_pass(cfg) == 8
    assert checkpoints_kept(cfg) == 2 + 10
    assert checkpoint_bytes(composed("callbacks.ema.decays=[0.9,0.99]"), 1000) == 4000 * (1 + 2 + 2)


def test_optimizer_states_are_those_of_the_optimizer(composed) -> None:
    """Adam keeps two moments, plain descent nothing, momentum one."""
    descent = ["optimizer._target_=torch.optim.SGD", "~optimizer.betas", "~optimizer.eps", "~optimizer.fused"]
    assert optimizer_states(composed()) == 2
    assert optimizer_states(composed("optimizer=adamw")) == 2
    assert optimizer_states(composed(*descent)) == 0
    assert optimizer_states(composed(*descent, "+optimizer.momentum=0.9")) == 1


def test_published_unet_has_its_published_size(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64)
    data.source.channels, data.source.image_size = 3, 32
    network = meta_network(composed("network=unet_ddpm"), data, Epsilon(), FixedLarge())
    assert sum(p.numel() for p in network.parameters()) == 35_746_307
